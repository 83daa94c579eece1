// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "jit/object_key.h"

namespace hostjit {

class PrivateDirectory;

// Object files on disk, for later processes. An entry is used when its directory and its file are
// this user's alone, its header names the key, and its digest fits; otherwise it counts as absent
// and is replaced. No method throws or fails: without a usable directory nothing is found and
// nothing kept, and object_cache_report() says why. Any thread, any number of processes.
class ObjectCache {
 public:
  ObjectCache(std::string directory, int64_t most_bytes)
      : directory_(std::move(directory)), most_bytes_(most_bytes) {}

  // The cache that the knobs name; nullopt when it is off or the user has no home.
  static std::optional<ObjectCache> of_knobs();

  std::optional<std::string> find(const ObjectKey& key) const;
  // Removes the entries that were used longest ago until there is room for a sixteenth, which is
  // stored before the directory, of any number of files, is looked through again.
  void store(const ObjectKey& key, std::string_view object) const;

  const std::string& directory() const { return directory_; }

 private:
  void trim(const PrivateDirectory& directory) const;

  std::string directory_;
  int64_t most_bytes_;
};

// The name of the file of an entry.
std::string object_file_name(const ObjectKey& key);

}  // namespace hostjit
