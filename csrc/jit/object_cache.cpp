// SPDX-License-Identifier: Apache-2.0
#include "jit/object_cache.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/BLAKE3.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>

#include "jit/jit.h"
#include "jit/private_directory.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

constexpr std::array<char, 8> kMagic = {'h', 'o', 's', 't', 'j', 'i', 't', '\0'};
// Of the header; what the content depends on is in the key.
constexpr uint64_t kVersion = 1;
constexpr std::string_view kSuffix = ".o";
// No process takes so long to write a file.
constexpr int64_t kAbandoned = 3'600'000'000'000;

// Of the bytes of a cache: what a process stores before it looks through the directory again.
constexpr int64_t kRoom = 16;

// What an entry begins with; the object follows.
struct Header {
  std::array<char, 8> magic = kMagic;
  uint64_t version = kVersion;
  uint64_t object_bytes = 0;
  ObjectKey key{};
  std::array<uint8_t, 32> digest{};
};
static_assert(std::is_trivially_copyable_v<Header>);
static_assert(sizeof(Header) == 88, "has padding");

Header make_header(const ObjectKey& key, std::string_view object) {
  Header header;
  header.object_bytes = object.size();
  header.key = key;
  llvm::BLAKE3 digest;
  digest.update(llvm::ArrayRef<uint8_t>(key));
  digest.update(llvm::StringRef(object.data(), object.size()));
  header.digest = digest.final<std::tuple_size_v<decltype(header.digest)>>();
  return header;
}

// The object, when `entry` is whole and the one that was asked for.
std::optional<std::string> object_of(const std::string& entry, const ObjectKey& key) {
  if (entry.size() < sizeof(Header)) return std::nullopt;
  std::string object = entry.substr(sizeof(Header));
  const Header expected = make_header(key, object);
  if (std::memcmp(entry.data(), &expected, sizeof expected) != 0) return std::nullopt;
  return object;
}

bool is_entry(const std::string& name) {
  return name.ends_with(kSuffix) && name.size() == 2 * std::tuple_size_v<ObjectKey> + 2 &&
         std::all_of(name.begin(), name.end() - kSuffix.size(), llvm::isHexDigit);
}

int64_t now() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// XDG's rule; empty without a home.
std::string user_directory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache == '/') return std::string(cache) + "/hostjit";
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return std::string(home) + "/.cache/hostjit";
  return "";
}

class Counters {
 public:
  static Counters& get() {
    static auto* counters =
        new Counters;  // never destroyed: threads may outlive static destructors
    return *counters;
  }

  void count(int64_t ObjectCacheReport::* counter, int64_t amount = 1) {
    const std::lock_guard lock(mutex_);
    report_.*counter += amount;
  }
  void note(std::string problem) {
    const std::lock_guard lock(mutex_);
    report_.problem = std::move(problem);
  }
  ObjectCacheReport report() {
    const std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  std::mutex mutex_;
  ObjectCacheReport report_;
};

// What this process may store in each cache before it looks through it.
class Rooms {
 public:
  static Rooms& get() {
    static auto* rooms = new Rooms;  // never destroyed, like Counters
    return *rooms;
  }

  // Takes room for an entry; false when there was none left, and there is all of it again.
  bool take(const std::string& directory, int64_t most_bytes, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    int64_t& left = left_[{directory, most_bytes}];
    left -= bytes;
    if (left >= 0) return true;
    left = most_bytes / kRoom;
    return false;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, int64_t>, int64_t> left_;
};

}  // namespace

std::string object_file_name(const ObjectKey& key) {
  return llvm::toHex(key, /*LowerCase=*/true) + std::string(kSuffix);
}

std::optional<ObjectCache> ObjectCache::of_knobs() {
  const std::optional<int64_t> most_mebibytes = knob_integer(Knob::kObjectCache);
  if (!most_mebibytes) return std::nullopt;
  std::string directory = cache_directory();
  if (directory.empty()) directory = user_directory();
  if (directory.empty()) return std::nullopt;
  constexpr int64_t kMebibyte = 1024 * 1024;
  constexpr int64_t kMostMebibytes = 1024 * 1024;
  const int64_t limit = std::min(*most_mebibytes, kMostMebibytes) * kMebibyte;
  return ObjectCache(std::move(directory), limit);
}

std::optional<std::string> ObjectCache::find(const ObjectKey& key) const {
  std::string problem;
  std::optional<std::string> object;
  if (const auto directory = PrivateDirectory::open(directory_, problem)) {
    const std::string name = object_file_name(key);
    if (const auto entry = directory->read(name, problem)) {
      object = object_of(*entry, key);
      if (object) {
        directory->touch(name);
      } else {
        problem = name + " is damaged";
      }
    }
    if (!problem.empty()) Counters::get().count(&ObjectCacheReport::rejected);
  }
  if (!problem.empty()) Counters::get().note(std::move(problem));
  Counters::get().count(object ? &ObjectCacheReport::hits : &ObjectCacheReport::misses);
  return object;
}

void ObjectCache::store(const ObjectKey& key, std::string_view object) const {
  const Header header = make_header(key, object);
  std::string entry(reinterpret_cast<const char*>(&header), sizeof header);
  entry += object;
  const auto bytes = static_cast<int64_t>(entry.size());
  if (bytes > most_bytes_) return;
  std::string problem;
  const auto directory = PrivateDirectory::open(directory_, problem);
  if (directory && directory->write(object_file_name(key), entry, problem)) {
    Counters::get().count(&ObjectCacheReport::stored);
    if (!Rooms::get().take(directory_, most_bytes_, bytes)) trim(*directory);
  }
  if (!problem.empty()) Counters::get().note(std::move(problem));
}

void ObjectCache::trim(const PrivateDirectory& directory) const {
  std::vector<PrivateDirectory::File> entries;
  int64_t bytes = 0;
  const int64_t time = now();
  for (PrivateDirectory::File& file : directory.files()) {
    if (file.name.ends_with(kUnfinishedFile) && time - file.last_use > kAbandoned) {
      directory.remove(file.name);
    }
    if (!is_entry(file.name)) continue;
    bytes += file.bytes;
    entries.push_back(std::move(file));
  }
  std::ranges::sort(entries, {}, &PrivateDirectory::File::last_use);
  for (const PrivateDirectory::File& entry : entries) {
    if (bytes <= most_bytes_ - most_bytes_ / kRoom) break;
    directory.remove(entry.name);
    bytes -= entry.bytes;
    Counters::get().count(&ObjectCacheReport::evicted);
  }
}

ObjectCacheReport object_cache_report() {
  ObjectCacheReport report = Counters::get().report();
  if (const auto cache = ObjectCache::of_knobs()) report.directory = cache->directory();
  return report;
}

}  // namespace hostjit
