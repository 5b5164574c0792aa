// Stand for torch/extension.h where an extension's device code is compiled and not its bindings: the real header takes
// 25 s, two thirds of them for Python's and torch's frontends, and needs Python's headers.
#pragma once
#include <torch/types.h>

namespace pybind11 {

struct arg {
  constexpr explicit arg(const char*) {}
  template <class Value> const arg& operator=(Value&&) const { return *this; }
  const arg& noconvert(bool = true) const { return *this; }
  const arg& none(bool = true) const { return *this; }
};

template <class...> struct call_guard {};
struct gil_scoped_release {};
struct gil_scoped_acquire {};

struct module_ {
  template <class... Arguments> module_& def(const char*, Arguments&&...) { return *this; }
  const char*& doc() { return text; }
  const char* text = "";
};
using module = module_;

}  // namespace pybind11

namespace py = pybind11;

#define PYBIND11_MODULE(name, variable) [[maybe_unused]] static void bind_extension(pybind11::module_& variable)
