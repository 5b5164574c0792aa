// Name the variables of a loaded library, from the symbols in its file: the loader's own table lacks those with local names.
#pragma once
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace emu {

struct Variable {
  const char *begin, *end;
  char name[48];
  uint32_t launch;  // the last one that touched it
};

// The contents of a file, unmapped at the end of the scope. `begin` is null if it cannot be read.
struct MappedFile {
  const char* begin = nullptr;
  size_t size = 0;
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    struct stat found = {};
    if (fstat(file, &found) == 0 && found.st_size > 0) {
      void* at = mmap(nullptr, size_t(found.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      if (at != MAP_FAILED) begin = static_cast<const char*>(at), size = size_t(found.st_size);
    }
    close(file);
  }
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (begin != nullptr) munmap(const_cast<char*>(begin), size);
  }
  // `count` elements at an offset, or null if the file ends before them.
  template <class T>
  const T* at(size_t offset, size_t count = 1) const {
    const bool inside = begin != nullptr && offset <= size && count <= (size - offset) / sizeof(T);
    return inside ? reinterpret_cast<const T*>(begin + offset) : nullptr;
  }
};

// Write what the source calls a variable: the last part of its name, without namespaces and functions.
inline void write_source_name(char* text, size_t size, const char* symbol) {
  int status = 0;
  char* whole = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const char* name = status == 0 ? whole : symbol;
  for (const char* next = name; (next = strstr(next, "::")) != nullptr;) name = next += 2;
  snprintf(text, size, "%s", name);
  free(whole);
}

// Whether a symbol is one of the variables of this runtime or of C++'s, or the guard of one.
inline bool is_ours(const char* symbol) {
  constexpr const char* STARTS[] = {"emu_thread", "_ZL16emu_lds_red_zone", "_ZN3emu12_GLOBAL__N_1", "_ZZN3emu12_GLOBAL__N_1",
                                    "_ZGVZN3emu12_GLOBAL__N_1", "completed.", "DW.ref."};
  for (const char* start : STARTS)
    if (strncmp(symbol, start, strlen(start)) == 0) return true;
  return false;
}

// Add the writable variables among the symbols of a table, in order of their addresses.
inline void add_variables(const MappedFile& file, const Elf64_Shdr* sections, unsigned section_count, const Elf64_Shdr& table,
                          const char* base, std::vector<Variable>& found) {
  const size_t count = table.sh_size / sizeof(Elf64_Sym), text_size = sections[table.sh_link].sh_size;
  const auto* symbols = file.at<Elf64_Sym>(table.sh_offset, count);
  const auto* text = file.at<char>(sections[table.sh_link].sh_offset, text_size);
  if (symbols == nullptr || text == nullptr) return;
  for (const Elf64_Sym* symbol = symbols; symbol < symbols + count; ++symbol) {
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_size == 0) continue;
    if (symbol->st_shndx >= section_count || symbol->st_name >= text_size) continue;
    const char* name = text + symbol->st_name;
    if ((sections[symbol->st_shndx].sh_flags & SHF_WRITE) == 0 || is_ours(name)) continue;
    Variable variable = {base + symbol->st_value, base + symbol->st_value + symbol->st_size, {}, 0};
    write_source_name(variable.name, sizeof variable.name, name);
    found.push_back(variable);
  }
  std::sort(found.begin(), found.end(), [](const Variable& one, const Variable& other) { return one.begin < other.begin; });
}

// Read the writable variables of the library that is loaded at `base`, without the runtime's own. Return whether its file
// has a table of symbols.
inline bool read_variables(const char* path, const char* base, std::vector<Variable>& found) {
  const MappedFile file(path);
  const auto* header = file.at<Elf64_Ehdr>(0);
  if (header == nullptr || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  const auto* sections = file.at<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return false;
  for (unsigned number = 0; number < header->e_shnum; ++number) {
    if (sections[number].sh_type != SHT_SYMTAB || sections[number].sh_link >= header->e_shnum) continue;
    add_variables(file, sections, header->e_shnum, sections[number], base, found);
    return true;
  }
  return false;
}

// The variable that contains an address, or null; the variables are in order of their addresses.
inline Variable* variable_at(std::vector<Variable>& variables, const char* at) {
  const auto next = std::upper_bound(variables.begin(), variables.end(), at,
                                     [](const char* address, const Variable& one) { return address < one.begin; });
  return next != variables.begin() && at < next[-1].end ? &next[-1] : nullptr;
}

}  // namespace emu
