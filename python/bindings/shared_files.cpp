// SPDX-License-Identifier: Apache-2.0
// The folders and files of tensordict's memory-mapped tensors.
#include <nanobind/stl/string.h>

#include <filesystem>
#include <string>
#include <tendon/tensor/consolidated.hpp>
#include <tendon/tensor/memmap.hpp>

#include "bindings.hpp"
#include "choices.hpp"
#include "conversion.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "file_name.hpp"
#include "wait.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

using Load = Result<TensorDict> (*)(const std::filesystem::path&, Deadline, MapMode);
using Save = Result<void> (*)(const std::filesystem::path&, const TensorDict&);

template <Load kLoad>
nb::object load(nb::object path, const std::string& mode, nb::object as, nb::object device,
                nb::object timeout) {
  as = conversion_from(as, device);
  const std::string name = file_name(path);
  const MapMode map = word_from<MapMode>("mode", mode);
  auto read = wait_in_slices(deadline_of(timeout, 0),
                             [&](Deadline until) { return kLoad(name, until, map); });
  TensorDict dict = unwrap(std::move(read));
  return as.is_none() ? nb::cast(std::move(dict)) : converted(std::move(dict), as);
}

template <Save kSave>
void save(nb::object path, nb::object batch) {
  const std::string name = file_name(path);
  const TensorDict dict = dict_for_file(batch);
  auto saved = [&] {
    const WithoutGil unlocked;
    return kSave(name, dict);
  }();
  unwrap(std::move(saved));
}

}  // namespace

void bind_shared_files(nb::module_& module) {
  module.def("load_memmap", load<load_memmap>, nb::arg("path").none(), nb::kw_only(),
             nb::arg("mode") = "c", nb::arg("as_").none() = nb::none(),
             nb::arg("device").none() = nb::none(), nb::arg("timeout").none() = 0.0,
             "The batch in a folder of memory-mapped tensors (tensordict's memmap).\n\n"
             "mode: 'c': what is written to them stays in this process; 'r': they are\n"
             "read-only; 'r+': it reaches the files, and all that have mapped them.\n"
             "as_, device: as those of Pipe.recv.\n"
             "timeout: seconds to wait for a writer that is not there yet or not done, and\n"
             "then Timeout; None: for ever; 0, the default: FileNotFound at once.\n\n"
             "Raises FileNotFound, CorruptData, LimitExceeded, UnsupportedDType,\n"
             "UnsupportedDevice, NotSupported.",
             nb::sig("def load_memmap(path: str | os.PathLike[str], *, mode: str = 'c', as_: "
                     "typing.Any = None, device: object = None, timeout: float | None = 0.0) -> "
                     "typing.Any"));
  module.def("save_memmap", save<save_memmap>, nb::arg("path").none(), nb::arg("batch").none(),
             "Writes a batch as such a folder, which tensordict.TensorDict.load_memmap reads.\n\n"
             "Each file appears as a whole, meta.json behind those that it names.",
             nb::sig("def save_memmap(path: str | os.PathLike[str], batch: object) -> None"));
  module.def("load_consolidated", load<load_consolidated>, nb::arg("path").none(), nb::kw_only(),
             nb::arg("mode") = "c", nb::arg("as_").none() = nb::none(),
             nb::arg("device").none() = nb::none(), nb::arg("timeout").none() = 0.0,
             "The batch in a file of a consolidated TensorDict (tensordict's consolidate).\n\n"
             "mode, as_, device, timeout [s] and errors: as load_memmap.",
             nb::sig("def load_consolidated(path: str | os.PathLike[str], *, mode: str = 'c', "
                     "as_: typing.Any = None, device: object = None, timeout: float | None = 0.0) "
                     "-> typing.Any"));
  module.def("save_consolidated", save<save_consolidated>, nb::arg("path").none(),
             nb::arg("batch").none(),
             "Saves a batch as such a file, which TensorDict.from_consolidated reads: as a\n"
             "whole or not at all.",
             nb::sig("def save_consolidated(path: str | os.PathLike[str], batch: object) -> None"));
}

}  // namespace tendon::python
