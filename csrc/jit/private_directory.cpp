// SPDX-License-Identifier: Apache-2.0
#include "jit/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "support/check.h"

namespace hostjit {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool is_open() const { return number_ >= 0; }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

std::string failure(std::string_view what, const std::string& name) {
  return concat("can't ", what, " ", name, ": ", std::strerror(errno));
}

// Empty when only this user may write what `status` is of.
std::string trust_problem(const struct stat& status, const std::string& name) {
  if (status.st_uid != ::geteuid()) return name + " belongs to another user";
  constexpr mode_t kWritableByOthers{S_IWGRP | S_IWOTH};
  if ((status.st_mode & kWritableByOthers) != 0) return name + " can be written by other users";
  return "";
}

bool write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Up to the end of the file or of `content`.
bool read_all(int descriptor, std::string& content) {
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t part = ::read(descriptor, content.data() + size, content.size() - size);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return false;
    if (part == 0) break;
    size += static_cast<size_t>(part);
  }
  content.resize(size);
  return true;
}

std::string unfinished_name(const std::string& name) {
  static std::atomic<uint64_t> count{0};
  return concat(name, ".", ::getpid(), ".", count++, kUnfinishedFile);
}

}  // namespace

std::optional<PrivateDirectory> PrivateDirectory::open(const std::string& path,
                                                       std::string& problem) {
  std::error_code ignored;  // mkdir says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    problem = failure("make", path);
    return std::nullopt;
  }
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status{};
  if (!directory.is_open() || ::fstat(directory.get(), &status) != 0) {
    problem = failure("open", path);
    return std::nullopt;
  }
  problem = trust_problem(status, path);
  if (!problem.empty()) return std::nullopt;
  return PrivateDirectory(directory.release());
}

PrivateDirectory::PrivateDirectory(PrivateDirectory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

PrivateDirectory::~PrivateDirectory() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<std::string> PrivateDirectory::read(const std::string& name,
                                                  std::string& problem) const {
  // Without O_NONBLOCK, a pipe of this name would block.
  const Descriptor file(
      ::openat(descriptor_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) {
    problem = errno == ENOENT ? "" : failure("open", name);
    return std::nullopt;
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    problem = name + " is no file";
    return std::nullopt;
  }
  problem = trust_problem(status, name);
  if (!problem.empty()) return std::nullopt;
  std::string content(static_cast<size_t>(status.st_size), '\0');
  if (!read_all(file.get(), content)) {
    problem = failure("read", name);
    return std::nullopt;
  }
  return content;
}

void PrivateDirectory::touch(const std::string& name) const {
  ::utimensat(descriptor_, name.c_str(), /*times=now*/ nullptr, AT_SYMLINK_NOFOLLOW);
}

bool PrivateDirectory::write(const std::string& name, std::string_view content,
                             std::string& problem) const {
  const std::string unfinished = unfinished_name(name);
  Descriptor file(::openat(descriptor_, unfinished.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) {
    problem = failure("make", unfinished);
    return false;
  }
  const bool is_written = write_all(file.get(), content) && ::close(file.release()) == 0;
  if (is_written && ::renameat(descriptor_, unfinished.c_str(), descriptor_, name.c_str()) == 0) {
    return true;
  }
  problem = failure("write", name);
  remove(unfinished);
  return false;
}

void PrivateDirectory::remove(const std::string& name) const {
  ::unlinkat(descriptor_, name.c_str(), 0);
}

std::vector<PrivateDirectory::File> PrivateDirectory::files() const {
  std::vector<File> files;
  // A descriptor of its own: reading moves it.
  Descriptor copy(::openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* stream = copy.is_open() ? ::fdopendir(copy.get()) : nullptr;
  if (!stream) return files;
  copy.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> closed(stream, &::closedir);
  while (const dirent* entry = ::readdir(stream)) {
    struct stat status{};
    if (::fstatat(descriptor_, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    files.push_back({entry->d_name, status.st_size,
                     status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
  }
  return files;
}

}  // namespace hostjit
