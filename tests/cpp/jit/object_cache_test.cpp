// SPDX-License-Identifier: Apache-2.0
#include "jit/object_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ir/parser.h"
#include "jit/jit.h"
#include "support/check.h"
#include "support/knobs.h"

namespace hostjit {
namespace {

namespace fs = std::filesystem;

ObjectKey key_of(uint8_t number) {
  ObjectKey key{};
  key.fill(number);
  return key;
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_content(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// A cache in a directory of its own, and what it counted since.
class ObjectCacheTest : public ::testing::Test {
 protected:
  ObjectCacheTest() : root_(fs::path(::testing::TempDir()) / "hostjit-object-cache-XXXXXX") {
    if (mkdtemp(root_.data()) == nullptr) std::abort();
  }
  ~ObjectCacheTest() override { fs::remove_all(root_); }

  fs::path directory() const { return fs::path(root_) / "parent" / "cache"; }
  ObjectCache cache(int64_t most_bytes = 1 << 20) const {
    return ObjectCache(directory(), most_bytes);
  }
  fs::path file(const ObjectKey& key) const { return directory() / object_file_name(key); }

  int64_t counted(int64_t ObjectCacheReport::* counter) const {
    return object_cache_report().*counter - before_.*counter;
  }

 private:
  std::string root_;
  ObjectCacheReport before_ = object_cache_report();
};

TEST_F(ObjectCacheTest, FindsWhatItStored) {
  EXPECT_EQ(cache().find(key_of(1)), std::nullopt);
  const std::string object("a\0b", 3);
  cache().store(key_of(1), object);
  EXPECT_EQ(cache().find(key_of(1)), object);
  EXPECT_EQ(cache().find(key_of(2)), std::nullopt);
  cache().store(key_of(1), "");
  EXPECT_EQ(cache().find(key_of(1)), "");
  EXPECT_EQ(counted(&ObjectCacheReport::hits), 2);
  EXPECT_EQ(counted(&ObjectCacheReport::misses), 2);
  EXPECT_EQ(counted(&ObjectCacheReport::rejected), 0);
  EXPECT_EQ(counted(&ObjectCacheReport::stored), 2);
}

TEST_F(ObjectCacheTest, IsOfThisUserAlone) {
  cache().store(key_of(1), "object");
  const auto mode = [](const fs::path& path) { return fs::status(path).permissions(); };
  EXPECT_EQ(mode(directory()), fs::perms::owner_all);
  EXPECT_EQ(mode(file(key_of(1))), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(ObjectCacheTest, RejectsAnEntryWithAnyByteChanged) {
  cache().store(key_of(1), "object");
  const std::string entry = content_of(file(key_of(1)));
  for (size_t i = 0; i < entry.size(); ++i) {
    std::string damaged = entry;
    damaged[i] ^= 1;
    write_content(file(key_of(1)), damaged);
    EXPECT_EQ(cache().find(key_of(1)), std::nullopt) << "byte " << i;
  }
  EXPECT_EQ(counted(&ObjectCacheReport::rejected), static_cast<int64_t>(entry.size()));
  EXPECT_EQ(object_cache_report().problem, object_file_name(key_of(1)) + " is damaged");
}

TEST_F(ObjectCacheTest, RejectsAnEntryOfAnotherLength) {
  cache().store(key_of(1), "object");
  const std::string entry = content_of(file(key_of(1)));
  for (size_t size = 0; size < entry.size(); ++size) {
    write_content(file(key_of(1)), entry.substr(0, size));
    EXPECT_EQ(cache().find(key_of(1)), std::nullopt) << size << " bytes";
  }
  write_content(file(key_of(1)), entry + "x");
  EXPECT_EQ(cache().find(key_of(1)), std::nullopt);
  cache().store(key_of(1), "object");
  EXPECT_EQ(cache().find(key_of(1)), "object");
}

TEST_F(ObjectCacheTest, RejectsTheEntryOfAnotherKey) {
  cache().store(key_of(1), "object");
  fs::copy_file(file(key_of(1)), file(key_of(2)));
  EXPECT_EQ(cache().find(key_of(2)), std::nullopt);
  EXPECT_EQ(counted(&ObjectCacheReport::rejected), 1);
}

TEST_F(ObjectCacheTest, RejectsWhatOthersMayWrite) {
  cache().store(key_of(1), "object");
  ASSERT_EQ(chmod(file(key_of(1)).c_str(), 0620), 0);
  EXPECT_EQ(cache().find(key_of(1)), std::nullopt);
  EXPECT_EQ(object_cache_report().problem,
            object_file_name(key_of(1)) + " can be written by other users");
  cache().store(key_of(1), "object");
  EXPECT_EQ(cache().find(key_of(1)), "object");
  ASSERT_EQ(chmod(directory().c_str(), 0702), 0);
  EXPECT_EQ(cache().find(key_of(1)), std::nullopt);
  cache().store(key_of(2), "object");
  EXPECT_FALSE(fs::exists(file(key_of(2))));
  EXPECT_EQ(object_cache_report().problem, directory().string() + " can be written by other users");
}

TEST_F(ObjectCacheTest, RejectsWhatIsNoFile) {
  cache().store(key_of(1), "object");
  fs::create_symlink(file(key_of(1)), file(key_of(2)));
  ASSERT_EQ(mkfifo(file(key_of(3)).c_str(), 0600), 0);
  fs::create_directory(file(key_of(4)));
  for (const uint8_t number : {2, 3, 4}) {
    EXPECT_EQ(cache().find(key_of(number)), std::nullopt);
    cache().store(key_of(number), "object");
  }
  EXPECT_EQ(counted(&ObjectCacheReport::rejected), 3);
  EXPECT_EQ(cache().find(key_of(2)), "object");
  EXPECT_EQ(cache().find(key_of(3)), "object");
  EXPECT_EQ(cache().find(key_of(4)), std::nullopt);
}

TEST_F(ObjectCacheTest, KeepsNothingWhereItCannotWrite) {
  const ObjectCache nowhere("/dev/null/cache", 1 << 20);
  EXPECT_EQ(nowhere.find(key_of(1)), std::nullopt);
  nowhere.store(key_of(1), "object");
  EXPECT_EQ(counted(&ObjectCacheReport::stored), 0);
  EXPECT_NE(object_cache_report().problem.find("can't make /dev/null/cache: "), std::string::npos);
}

TEST_F(ObjectCacheTest, EvictsWhatWasUsedLongestAgo) {
  const std::string object(1000, 'x');
  for (const uint8_t number : {1, 2, 3}) cache().store(key_of(number), object);
  write_content(directory() / "not an entry", object);
  const auto age = [&](uint8_t number, int seconds) {
    fs::last_write_time(file(key_of(number)),
                        fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
  };
  age(1, 30);
  age(2, 20);
  age(3, 10);
  EXPECT_EQ(cache().find(key_of(1)), object);  // a use
  cache(/*most_bytes=*/3500).store(key_of(4), object);
  EXPECT_EQ(counted(&ObjectCacheReport::evicted), 1);
  EXPECT_TRUE(fs::exists(file(key_of(1))));
  EXPECT_FALSE(fs::exists(file(key_of(2))));
  EXPECT_TRUE(fs::exists(file(key_of(3))));
  EXPECT_TRUE(fs::exists(file(key_of(4))));
  EXPECT_TRUE(fs::exists(directory() / "not an entry"));
  cache(/*most_bytes=*/500).store(key_of(5), object);
  EXPECT_FALSE(fs::exists(file(key_of(5))));
}

TEST_F(ObjectCacheTest, RemovesFilesThatWereNeverFinished) {
  cache().store(key_of(1), "object");
  const fs::path old_file = directory() / "old.unfinished";
  const fs::path new_file = directory() / "new.unfinished";
  write_content(old_file, "");
  write_content(new_file, "");
  fs::last_write_time(old_file, fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache().store(key_of(2), std::string((1 << 20) / 16, 'x'));
  EXPECT_FALSE(fs::exists(old_file));
  EXPECT_TRUE(fs::exists(new_file));
}

TEST_F(ObjectCacheTest, LooksThroughItsFilesForEachSixteenthThatItStores) {
  constexpr int64_t kMost = 160'000;
  cache().store(key_of(0), "");  // makes the directory
  const fs::path abandoned = directory() / "old.unfinished";
  for (int turn = 0; turn < 12; ++turn) {
    write_content(abandoned, "");
    fs::last_write_time(abandoned, fs::file_time_type::clock::now() - std::chrono::hours(2));
    cache(kMost).store(key_of(static_cast<uint8_t>(turn)), std::string(3000, 'x'));
    EXPECT_EQ(fs::exists(abandoned), turn % 4 != 0) << turn;
  }
}

TEST_F(ObjectCacheTest, ManyWritersAndReadersSeeWholeEntries) {
  const std::vector<std::string> objects = {std::string(100'000, 'a'), std::string(50'000, 'b')};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        cache().store(key_of(1), objects[i % 2]);
        const auto found = cache().find(key_of(1));
        EXPECT_TRUE(found == objects[0] || found == objects[1]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted(&ObjectCacheReport::rejected), 0);
}

TEST_F(ObjectCacheTest, FollowsTheKnobs) {
  const ScopedKnobs scope({.enable = "object_cache(3)", .cache_directory = directory()});
  EXPECT_EQ(object_cache_report().directory, directory());
  const ScopedKnobs off({.disable = "object_cache"});
  EXPECT_FALSE(ObjectCache::of_knobs().has_value());
  EXPECT_EQ(object_cache_report().directory, "");
}

constexpr const char* kProgram = R"(
program @one(%x: tensor<f32, [4], cpu>) {
  %y = allocate() : tensor<f32, [4], cpu>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%y]) loc("model.py:1")
  return %y
}
kernel @k """
define void @k(ptr %a, ptr %b) { ret void }
"""
)";

std::optional<ObjectKey> changed_key(const std::string& from, const std::string& to) {
  std::string text = kProgram;
  return object_key(parse_program(text.replace(text.find(from), from.size(), to)), "cpu");
}

TEST(ObjectKey, IsOfWhatDecidesTheCode) {
  const std::optional<ObjectKey> key = object_key(parse_program(kProgram), "cpu");
  ASSERT_NE(key, std::nullopt) << "linked without a build id";
  EXPECT_EQ(changed_key("model.py:1", "model.py:2"), key);
  EXPECT_EQ(object_key(parse_program(kProgram).clone(), "cpu"), key);
  EXPECT_NE(changed_key("ret void", "unreachable"), key);
  EXPECT_NE(changed_key("%x: tensor<f32, [4]", "%x: tensor<f32, [5]"), key);
  EXPECT_NE(object_key(parse_program(kProgram), "another cpu"), key);
}

}  // namespace
}  // namespace hostjit
