// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hostjit {
namespace {

constexpr const char* kVariable = "HOSTJIT_CACHE_DIR";
constexpr const char* kPrefix = "hostjit-test-cache-";

// Tests leave the user's object cache alone. Made before the first knob is read; the process of a
// death test finds it made.
class OwnObjectCache : public ::testing::Environment {
 public:
  OwnObjectCache() {
    const char* inherited = std::getenv(kVariable);
    if (inherited && std::string(inherited).find(kPrefix) != std::string::npos) return;
    path_ = std::filesystem::temp_directory_path() / (std::string(kPrefix) + "XXXXXX");
    if (mkdtemp(path_.data()) == nullptr) std::abort();
    setenv(kVariable, path_.c_str(), /*overwrite=*/1);
  }
  void TearDown() override {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }

 private:
  std::string path_;
};

[[maybe_unused]] const auto* const kOwnObjectCache =
    ::testing::AddGlobalTestEnvironment(new OwnObjectCache);

}  // namespace
}  // namespace hostjit
