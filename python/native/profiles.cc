// Profiles, the stages that they are made of, calibration artefacts.
#include "glue.h"
#include "kvserve/profile.h"
#include "kvserve/stages.h"

namespace kvserve::python {
namespace {

// A default as its type says it: int, float, bool, or the choice's name.
nb::object ValueOf(const ParameterDescription& parameter, double value) {
  if (parameter.type == "real") return nb::float_(value);
  if (parameter.type == "boolean") return nb::bool_(value != 0.0);
  if (parameter.type == "integer") return nb::int_(static_cast<std::int64_t>(value));
  const std::string_view choice = parameter.choices[static_cast<std::size_t>(value)];
  return nb::str(choice.data(), choice.size());
}

nb::str Text(std::string_view text) {
  return nb::str(text.data(), text.size());
}

nb::dict ParameterDict(const ParameterDescription& parameter) {
  nb::dict row;
  row["id"] = parameter.id;
  row["type"] = Text(parameter.type);
  nb::list range;
  if (parameter.type == "choice") {
    for (const std::string_view choice : parameter.choices) range.append(Text(choice));
  } else {
    range.append(ValueOf(parameter, parameter.low));
    range.append(ValueOf(parameter, parameter.high));
  }
  row["range"] = nb::tuple(range);
  row["default"] = ValueOf(parameter, parameter.default_value);
  row["unit"] = Text(parameter.unit);
  row["help"] = Text(parameter.help);
  return row;
}

// Rows of plain values, from which the package makes its classes.
nb::list StageRows() {
  nb::list rows;
  for (const StageDescription& stage : DescribeStages()) {
    nb::dict row;
    row["kind"] = Text(StageKindName(stage.kind));
    row["name"] = Text(stage.name);
    row["id"] = stage.id;
    row["version"] = stage.version;
    row["lossless"] = stage.lossless;
    nb::list devices;
    if (stage.host) devices.append("host");
    if (stage.cuda) devices.append("cuda");
    row["devices"] = nb::tuple(devices);
    row["summary"] = Text(stage.summary);
    nb::dict parameters;
    for (const ParameterDescription& parameter : stage.parameters) {
      std::string name(parameter.plane);
      if (!name.empty()) name += "_";
      parameters[(name + std::string(parameter.name)).c_str()] = ParameterDict(parameter);
    }
    row["parameters"] = parameters;
    rows.append(row);
  }
  return rows;
}

nb::list PresetRows() {
  nb::list rows;
  for (const PresetDescription& preset : DescribePresets()) {
    nb::dict row;
    row["name"] = Text(preset.name);
    row["profile"] = Text(preset.profile);
    row["source"] = Text(preset.source);
    row["differs"] = Text(preset.differs);
    rows.append(row);
  }
  return rows;
}

void BindProfile(nb::module_& module) {
  nb::class_<Profile>(module, "Profile",
                      "The chain of stages that turns KV into wire bytes, from its short form: "
                      "'none', 'lossless', 'hadamard|uniform:k_levels=16,v_levels=8|rans'.")
      .def(
          "__init__",
          [](Profile* self, const std::string& text) {
            new (self) Profile(Take(ParseProfile(text)));
          },
          nb::arg("text"))
      .def_ro("name", &Profile::name, "canonical short form; two equal profiles share it")
      .def_prop_ro("lossless", &ProfileIsLossless, "whether decoding gives back every bit")
      .def_prop_ro("needs_calibration", &ProfileNeedsCalibration)
      .def_prop_ro("may_drop", &ProfileMayDrop,
                   "the selector by which frames may leave tokens out, or ''; engines that cannot "
                   "drop tokens refuse such a profile")
      .def("__str__", [](const Profile& self) { return self.name; })
      .def("__repr__", [](const Profile& self) { return "Profile('" + self.name + "')"; })
      .def("__hash__", [](const Profile& self) { return std::hash<std::string>{}(self.name) >> 1; })
      .def(
          "__eq__",
          [](const Profile& self, const Profile& other) { return self.stages == other.stages; },
          nb::is_operator());
}

void BindCalibration(nb::module_& module) {
  nb::class_<CalibrationHandle>(module, "Calibration",
                                "A .calib file: what stages have learnt offline about a model.")
      .def_static(
          "load",
          [](const std::string& path) {
            const nb::gil_scoped_release released;
            return CalibrationHandle{Take(LoadCalibration(path))};
          },
          nb::arg("path"), "Reads and checks a file.")
      .def_prop_ro(
          "fingerprint",
          [](const CalibrationHandle& self) {
            return ToBytes(CalibrationFingerprint(*self.artefact));
          },
          "XXH3-128 of the file, 16 bytes");
}

}  // namespace

void BindProfiles(nb::module_& module) {
  BindProfile(module);
  BindCalibration(module);
  module.def("stage_rows", &StageRows, "Every stage of this build, as dictionaries.");
  module.def("preset_rows", &PresetRows, "Every preset, as dictionaries.");
}

}  // namespace kvserve::python
