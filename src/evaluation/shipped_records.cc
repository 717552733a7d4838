#include "evaluation/shipped_records.h"

// The assembler copies the file into the object: a string literal of that size takes minutes.
asm(".section .rodata\n"
    ".global kvserve_records_begin\n.hidden kvserve_records_begin\n"
    "kvserve_records_begin:\n"
    ".incbin \"" KVSERVE_RECORDS_FILE
    "\"\n"
    ".global kvserve_records_end\n.hidden kvserve_records_end\n"
    "kvserve_records_end:\n"
    ".byte 0\n"
    ".text\n");
extern "C" {
extern const char kvserve_records_begin;  // NOLINT(readability-identifier-naming)
extern const char kvserve_records_end;    // NOLINT(readability-identifier-naming)
}

namespace kvserve {

std::string_view ShippedRecordsText() {
  return {&kvserve_records_begin, &kvserve_records_end};
}

Result<std::vector<Record>> ShippedRecords() {
  return ParseRecords(ShippedRecordsText(), "the data that is part of the program");
}

}  // namespace kvserve
