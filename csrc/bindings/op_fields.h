// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/program_bindings.h"
#include "ir/op.h"

namespace hostjit {

// An op of that name with the fields of the dict; results are new values of `result_types`, as many
// as there are `result_names` with these names.
// Throws Error for an unknown op or field, a missing operand, a value of the wrong kind, or a
// wrong number of result types.
OpVariant op_from_python(const std::shared_ptr<Program>& program, const std::string& name,
                         const pybind11::dict& fields, const pybind11::sequence& result_types,
                         const std::vector<std::string>& result_names);

// What a Python user sees of an op: a copy, so that passes cannot leave it dangling.
struct PyOp {
  std::string name;
  std::string location;
  std::string text;
  // Every declared field by its name: values, lists of values, attributes, lists of ops.
  pybind11::dict fields;
};

pybind11::list ops_to_python(const std::shared_ptr<Program>& program, const Region& region);

// An int or the name of a symbol.
Dim dim_from_python(const pybind11::handle& dim);
pybind11::object dim_to_python(const Dim& dim);

Type type_from_python(const pybind11::handle& type);
pybind11::object type_to_python(const Type& type);

}  // namespace hostjit
