// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <llvm/ExecutionEngine/Orc/LLJIT.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/host_target.h"
#include "jit/jit.h"

namespace hostjit {

// Code in this process; unmapped with this object.
class LoadedCode {
 public:
  LoadedCode(llvm::orc::ExecutionSession& session, llvm::orc::JITDylib& library)
      : session_(&session), library_(&library) {}
  LoadedCode(LoadedCode&& other) noexcept;
  LoadedCode& operator=(LoadedCode&& other) noexcept;
  ~LoadedCode();

  void* find(const std::string& symbol) const { return addresses_.at(symbol); }

 private:
  friend class JitSession;
  llvm::orc::ExecutionSession* session_;
  llvm::orc::JITDylib* library_;
  std::map<std::string, void*> addresses_;
};

// The one ORC session of the process. It is never destroyed: code may run until the process ends.
class JitSession {
 public:
  static JitSession& instance();

  // Held around every use of target() and link(): neither the target machine nor a module that is
  // being compiled may be shared.
  std::mutex& mutex() { return mutex_; }
  HostTarget& target() { return target_; }

  // Loads the code of object files that refer to each other and to `functions`, and finds `symbols`
  // in it. `name` is for messages.
  LoadedCode link(const std::vector<std::string>& objects, const std::string& name,
                  const std::vector<std::string>& symbols,
                  const std::map<std::string, void*>& functions);

 private:
  JitSession();
  void define(llvm::orc::JITDylib& library, const std::map<std::string, void*>& functions);

  std::mutex mutex_;
  HostTarget target_;
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  llvm::orc::JITDylib* externs_ = nullptr;
  int64_t num_libraries_ = 0;
};

// Adds up the milliseconds until its destruction.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& milliseconds);
  ~ScopedTimer();
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double& milliseconds_;
  int64_t start_;
};

}  // namespace hostjit
