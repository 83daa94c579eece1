// SPDX-License-Identifier: Apache-2.0
#include "jit/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace hostjit {
namespace {

struct Search {
  uintptr_t address;
  std::string id = {};
};

// The build id among notes that begin at multiples of `alignment`, or "".
std::string find_note(std::string_view notes, size_t alignment) {
  const auto aligned = [&](size_t size) { return (size + alignment - 1) & ~(alignment - 1); };
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const size_t content = aligned(sizeof note + note.n_namesz);
    const size_t end = content + aligned(note.n_descsz);
    if (end > notes.size()) break;
    constexpr std::string_view kOwner{ELF_NOTE_GNU, sizeof ELF_NOTE_GNU};  // with its terminator
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == kOwner) {
      return std::string(notes.substr(content, note.n_descsz));
    }
    notes.remove_prefix(end);
  }
  return "";
}

// Returns 1, which ends the search, at the object that holds the address.
int visit_object(dl_phdr_info* object, size_t /*size*/, void* argument) {
  auto* search = static_cast<Search*>(argument);
  std::string id;
  bool holds_address = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && search->address - begin < header.p_memsz) holds_address = true;
    if (header.p_type == PT_NOTE && id.empty()) {
      id = find_note({reinterpret_cast<const char*>(begin), header.p_memsz},
                     header.p_align == 8 ? 8 : 4);
    }
  }
  if (holds_address) search->id = std::move(id);
  return holds_address ? 1 : 0;
}

}  // namespace

std::string build_id(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address)};
  dl_iterate_phdr(&visit_object, &search);
  return search.id;
}

}  // namespace hostjit
