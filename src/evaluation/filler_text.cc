#include "evaluation/filler_text.h"

namespace kvserve {
namespace {

constexpr const char* kWho[] = {
    "The gardener",      "My neighbour",     "The old librarian", "A young engineer",
    "The ferry captain", "Her cousin",       "The baker",         "Nobody in the village",
    "The music teacher", "A passing walker", "The night porter",  "The beekeeper",
    "His grandmother",   "The map maker",    "The school choir",  "A retired judge",
    "The clockmaker",    "The stable owner", "One of the guests", "The weather observer"};
constexpr const char* kDid[] = {
    "had often spoken of",           "kept a careful record of",  "was fond of",
    "never quite understood",        "wrote a long letter about", "had almost forgotten",
    "asked everyone about",          "remembered the story of",   "was painting a picture of",
    "liked to argue about",          "spent the winter studying", "told the children about",
    "had once photographed",         "collected old drawings of", "was worried about",
    "could describe every detail of"};
constexpr const char* kWhat[] = {"the bridge below the mill",
                                 "the tall chestnut trees",
                                 "the harbour lights",
                                 "the first frost of the year",
                                 "the painted wooden boats",
                                 "the market on the hill",
                                 "the narrow mountain railway",
                                 "the abandoned lighthouse",
                                 "the bells of the chapel",
                                 "the wild geese",
                                 "the library's oldest atlas",
                                 "the flooded meadow",
                                 "the apple harvest",
                                 "the slow evening train",
                                 "the glass roof of the station",
                                 "the path through the marshes",
                                 "the travelling theatre",
                                 "the storm that took the pier",
                                 "the brass band from the north",
                                 "the well behind the church"};
constexpr const char* kWhen[] = {
    "before the days grew short",      "while the kettle was boiling", "on the way home from work",
    "after the rain had stopped",      "in the quiet weeks of spring", "when the shops were closed",
    "during the long summer evenings", "although it was getting late", "as the wind turned east",
    "because there was time to spare", "while others were asleep",     "at the end of every month",
    "whenever friends came to visit",  "in spite of the cold"};
constexpr const char* kThen[] = {"It made for a pleasant afternoon.",
                                 "The others listened politely.",
                                 "Nothing more was said about it.",
                                 "Everyone agreed that it was worth the trouble.",
                                 "The dog slept through all of it.",
                                 "There was bread and soup for supper.",
                                 "In the end it hardly mattered.",
                                 "That was how things were done there.",
                                 "The conversation soon drifted elsewhere.",
                                 "A light was still burning upstairs.",
                                 "The road was empty by then.",
                                 "No two accounts of it were alike."};

}  // namespace

std::string FillerText::Sentence() {
  if (random_() % 4 == 0) return std::string(Pick(kThen)) + " ";
  std::string sentence = Pick(kWho);
  for (const char* part : {Pick(kDid), Pick(kWhat), Pick(kWhen)})
    sentence += std::string(" ") + part;
  return sentence + ". ";
}

}  // namespace kvserve
