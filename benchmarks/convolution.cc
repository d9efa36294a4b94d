// What a kernel written by hand would reach: 3x3 convolutions of 32 to 32 channels, NHWC, zero
// padding, one core, AVX-512. `convolutions.py` compiles it and reads what it prints.
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

using std::size_t;
const int C = 32;

// W neighbouring positions of a row, all 32 channels of the output in registers.
template <int W>
static inline void block(const float* x, int stride, const float* k, float* y) {
  __m512 sum[W][2];
  for (int w = 0; w < W; w++) sum[w][0] = sum[w][1] = _mm512_setzero_ps();
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      for (int c = 0; c < C; c++) {
        const float* row = k + ((i * 3 + j) * C + c) * C;
        __m512 k0 = _mm512_loadu_ps(row), k1 = _mm512_loadu_ps(row + 16);
        for (int w = 0; w < W; w++) {
          __m512 v = _mm512_set1_ps(x[i * stride + (j + w) * C + c]);
          sum[w][0] = _mm512_fmadd_ps(v, k0, sum[w][0]);
          sum[w][1] = _mm512_fmadd_ps(v, k1, sum[w][1]);
        }
      }
  for (int w = 0; w < W; w++) {
    _mm512_storeu_ps(y + w * C, sum[w][0]);
    _mm512_storeu_ps(y + w * C + 16, sum[w][1]);
  }
}

static void pad(const float* x, float* padded, int side) {
  int stride = (side + 2) * C;
  memset(padded, 0, sizeof(float) * (side + 2) * stride);
  for (int i = 0; i < side; i++)
    memcpy(padded + (i + 1) * stride + C, x + i * side * C, sizeof(float) * side * C);
}

static void convolve(const float* x, const float* k, float* y, int n, int side, float* padded) {
  int stride = (side + 2) * C;
  for (int b = 0; b < n; b++) {
    pad(x + (size_t)b * side * side * C, padded, side);
    for (int i = 0; i < side; i++) {
      float* out = y + ((size_t)b * side + i) * side * C;
      const float* in = padded + i * stride;
      int j = 0;
      for (; j + 14 <= side; j += 14) block<14>(in + j * C, stride, k, out + j * C);
      for (; j + 7 <= side; j += 7) block<7>(in + j * C, stride, k, out + j * C);
      for (; j < side; j++) block<1>(in + j * C, stride, k, out + j * C);
    }
  }
}

// R rows of d += the sum over n positions of x^T g, in registers.
template <int R>
static inline void product(const float* x, const float* g, float* d, int n) {
  __m512 sum[R][2];
  for (int r = 0; r < R; r++) {
    sum[r][0] = _mm512_loadu_ps(d + r * C);
    sum[r][1] = _mm512_loadu_ps(d + r * C + 16);
  }
  for (int t = 0; t < n; t++) {
    __m512 g0 = _mm512_loadu_ps(g + t * C), g1 = _mm512_loadu_ps(g + t * C + 16);
    for (int r = 0; r < R; r++) {
      __m512 v = _mm512_set1_ps(x[t * C + r]);
      sum[r][0] = _mm512_fmadd_ps(v, g0, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(v, g1, sum[r][1]);
    }
  }
  for (int r = 0; r < R; r++) {
    _mm512_storeu_ps(d + r * C, sum[r][0]);
    _mm512_storeu_ps(d + r * C + 16, sum[r][1]);
  }
}

// `wide` holds g with two zeros after each row, so that its rows run on as those of the padded x.
static void kernel_gradient(const float* x, const float* g, float* d, int n, int side,
                            float* padded, float* wide) {
  int stride = (side + 2) * C;
  memset(d, 0, sizeof(float) * 9 * C * C);
  memset(wide, 0, sizeof(float) * (side + 2) * stride);
  for (int b = 0; b < n; b++) {
    pad(x + (size_t)b * side * side * C, padded, side);
    for (int i = 0; i < side; i++)
      memcpy(wide + i * stride, g + ((size_t)b * side + i) * side * C, sizeof(float) * side * C);
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) {
        const float* from = padded + i * stride + j * C;
        float* to = d + (i * 3 + j) * C * C;
        int positions = side * (side + 2) - 2;
        product<11>(from, wide, to, positions);
        product<11>(from + 11, wide, to + 11 * C, positions);
        product<10>(from + 22, wide, to + 22 * C, positions);
      }
  }
}

static double now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// Arguments: images and their side. Prints seconds of a processor: forward, kernel's gradient.
int main(int, char** given) {
  int n = atoi(given[1]), side = atoi(given[2]);
  size_t size = (size_t)n * side * side * C, room = (side + 2) * (side + 2) * C + 64;
  std::vector<float> x(size), y(size), k(9 * C * C), d(9 * C * C), padded(room), wide(room);
  for (float& v : x) v = rand() / (float)RAND_MAX - .5f;
  for (float& v : k) v = rand() / (float)RAND_MAX - .5f;
  std::vector<double> forward, backward;
  for (int round = 0; round < 15; round++) {
    double begun = now();
    convolve(x.data(), k.data(), y.data(), n, side, padded.data());
    forward.push_back(now() - begun);
    begun = now();
    kernel_gradient(x.data(), y.data(), d.data(), n, side, padded.data(), wide.data());
    backward.push_back(now() - begun);
  }
  std::sort(forward.begin(), forward.end());
  std::sort(backward.begin(), backward.end());
  printf("%g %g\n", forward[7], backward[7]);
}
