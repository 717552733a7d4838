#include "kernels/codebook/lloyd_max.h"

#include <array>
#include <cstddef>

namespace kvserve {
namespace {

// Positive points in units of 2^-13, by number of points; the others are their mirror images, and 0
// if the number is odd.
constexpr std::uint16_t kPositive[kMostCodebookPoints + 1][kMostCodebookPoints / 2] = {
    {},
    {},
    {6536},
    {10027},
    {3709, 12373},
    {6263, 14124},
    {2603, 8193, 15512},
    {4592, 9733, 16657},
    {2008, 6193, 11009, 17629},
    {3634, 7527, 12095, 18470},
    {1635, 4996, 8666, 13036, 19211},
    {3010, 6163, 9657, 13866, 19872},
    {1380, 4193, 7183, 10533, 14607, 20467},
    {2570, 5229, 8085, 11315, 15274, 21009},
    {1194, 3615, 6148, 8894, 12022, 15881, 21505},
    {2243, 4545, 6972, 9625, 12665, 16437, 21962},
    {1052, 3179, 5380, 7720, 10291, 13255, 16949, 22385},
};

struct Book {
  std::array<float, kMostCodebookPoints> points{};
  std::array<float, kMostCodebookPoints> middles{};
};

Book MakeBook(std::size_t count) {
  Book book;
  for (std::size_t i = 0; i < count / 2; ++i) {
    const float point = static_cast<float>(kPositive[count][i]) * 0x1p-13F;
    book.points[(count + 1) / 2 + i] = point;
    book.points[count / 2 - 1 - i] = -point;
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    book.middles[i] = (book.points[i] + book.points[i + 1]) * 0.5F;  // exact
  }
  return book;
}

std::array<Book, kMostCodebookPoints + 1> MakeBooks() {
  std::array<Book, kMostCodebookPoints + 1> books;
  for (std::size_t count = 2; count <= kMostCodebookPoints; ++count) books[count] = MakeBook(count);
  return books;
}

}  // namespace

Codebook LloydMaxCodebook(std::uint32_t points) {
  static const auto books = MakeBooks();
  const Book& book = books[points];
  return {{book.points.data(), points}, {book.middles.data(), points - std::size_t{1}}};
}

}  // namespace kvserve
