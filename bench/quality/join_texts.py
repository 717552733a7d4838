"""Joins the texts of a data set until each is long enough for long contexts.

    python bench/quality/join_texts.py --data texts.jsonl.gz --characters 150000 -o long.jsonl

Records of task lm, in their order; what is left at the end and too short is dropped.
"""

import argparse
import gzip
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="JSON lines, or gzipped")
    parser.add_argument("--characters", type=int, required=True, help="least length of a text")
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    opened = gzip.open if arguments.data.suffix == ".gz" else open
    with opened(arguments.data, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines if line.strip()]
    joined = []
    text = ""
    for record in records:
        if record["task"] != "lm":
            continue
        text += record["text"]
        if len(text) >= arguments.characters:
            joined.append({"id": f"{record['set']}_joined/{len(joined)}",
                           "set": f"{record['set']}_joined", "task": "lm", "text": text})
            text = ""
    arguments.o.write_text("".join(json.dumps(record) + "\n" for record in joined),
                           encoding="utf-8")
    print(f"{len(joined)} texts")


if __name__ == "__main__":
    main()
