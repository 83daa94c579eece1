// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hostjit {

// A directory whose files nobody but this user can have written. What is checked is what is used:
// all goes through one descriptor. Nothing throws; `problem` says what is wrong.
class PrivateDirectory {
 public:
  struct File {
    std::string name;
    int64_t bytes = 0;
    int64_t last_use = 0;  // nanoseconds since the epoch
  };

  // Makes the directory when it is missing, for this user alone.
  static std::optional<PrivateDirectory> open(const std::string& path, std::string& problem);

  PrivateDirectory(PrivateDirectory&& other) noexcept;
  PrivateDirectory& operator=(PrivateDirectory&&) = delete;
  ~PrivateDirectory();

  // The content; nullopt with an empty problem when there is no such file.
  std::optional<std::string> read(const std::string& name, std::string& problem) const;
  // Counts as a use of the file.
  void touch(const std::string& name) const;
  // Readers see the old file or the new one, also when several processes write; false on failure.
  bool write(const std::string& name, std::string_view content, std::string& problem) const;
  void remove(const std::string& name) const;
  // The regular files.
  std::vector<File> files() const;

 private:
  explicit PrivateDirectory(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

// What the names of unfinished files end with; one that is left behind was interrupted.
inline constexpr std::string_view kUnfinishedFile = ".unfinished";

}  // namespace hostjit
