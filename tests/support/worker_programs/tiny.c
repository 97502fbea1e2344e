/* A worker in C: one linear layer, y = x W^T + b, for inference. It knows nothing of golow but
 * docs/extend/protocol.md, which is the proof that a user's own runtime can join the ladder.
 *
 *     cc -O2 -o tiny tiny.c -lm && golow compare model.py:Linear --input 16 --worker tiny=./tiny
 */
#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <signal.h>
#include <sys/prctl.h>
#endif

enum { MOST_BATCHES = 64, PATH = 4096 };

static struct {
  int loaded, batches, rows, in, out, position;
  float *weight, *bias, *input[MOST_BATCHES]; /* [out, in], [out], [rows, in] */
  float *output;                              /* [rows, out] */
} model;

/* ---------------------------------------------------------------- JSON, as much as is needed */

static const char *blanks(const char *at) {
  while (isspace((unsigned char)*at)) at++;
  return at;
}

/* The value behind "key": in the text, NULL where there is none. */
static const char *value(const char *text, const char *key) {
  char quoted[256];
  if (snprintf(quoted, sizeof quoted, "\"%s\"", key) >= (int)sizeof quoted) return NULL;
  for (const char *at = text; (at = strstr(at, quoted)) != NULL;) {
    at = blanks(at + strlen(quoted));
    if (*at == ':') return blanks(at + 1);
  }
  return NULL;
}

/* The string behind the key; only the escapes \" and \\ and \/ are known. 0 where there is none. */
static int string(const char *text, const char *key, char *into, size_t size) {
  const char *at = value(text, key);
  if (at == NULL || *at != '"') return 0;
  size_t length = 0;
  for (at++; *at && *at != '"' && length + 1 < size; at++) {
    if (*at == '\\') at++;
    into[length++] = *at;
  }
  into[length] = 0;
  return *at == '"';
}

static int integer(const char *text, const char *key, long *into) {
  const char *at = value(text, key);
  return at != NULL && sscanf(at, "%ld", into) == 1;
}

/* The integers of the array behind the key; their count, -1 where there is no such array. */
static int integers(const char *text, const char *key, long *into, int most) {
  const char *at = value(text, key);
  if (at == NULL || *at != '[') return -1;
  int count = 0;
  for (at = blanks(at + 1); *at && *at != ']' && count < most; count++) {
    char *end;
    into[count] = strtol(at, &end, 10);
    if (end == at) return -1;
    at = blanks(end);
    if (*at == ',') at = blanks(at + 1);
  }
  return count;
}

/* ---------------------------------------------------------------- files */

static char *read_file(const char *folder, const char *name) {
  char path[PATH];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *data = calloc(1, (size_t)size + 1);
  if (data && fread(data, 1, (size_t)size, file) != (size_t)size) data = NULL;
  fclose(file);
  return data;
}

/* A float32 tensor of a safetensors file, with its shape; NULL where it is not there. */
static float *tensor(const char *file, const char *name, long *shape, int dimensions) {
  uint64_t header;
  long offsets[2];
  char type[8];
  memcpy(&header, file, sizeof header);
  const char *entry = value(file + sizeof header, name);
  if (entry == NULL) return NULL;
  if (!string(entry, "dtype", type, sizeof type) || strcmp(type, "F32")) return NULL;
  if (integers(entry, "shape", shape, dimensions) != dimensions) return NULL;
  if (integers(entry, "data_offsets", offsets, 2) != 2) return NULL;
  size_t size = (size_t)(offsets[1] - offsets[0]);
  float *data = malloc(size);
  if (data) memcpy(data, file + sizeof header + header + offsets[0], size);
  return data;
}

/* ---------------------------------------------------------------- the model */

static void forward(const float *input) {
  for (int row = 0; row < model.rows; row++)
    for (int j = 0; j < model.out; j++) {
      const float *x = input + row * model.in, *w = model.weight + j * model.in;
      float sum = model.bias[j];
      for (int i = 0; i < model.in; i++) sum += x[i] * w[i];
      model.output[row * model.out + j] = sum;
    }
}

static void iterate(void) { forward(model.input[model.position++ % model.batches]); }

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---------------------------------------------------------------- the requests */

static void refuse(const char *kind, const char *message) {
  printf("{\"ok\":false,\"error\":\"%s\",\"message\":\"%s\",", kind, message);
  printf("\"node\":\"\",\"module\":\"\"}\n");
}

static void load(const char *request) {
  char folder[PATH], mode[16];
  long shape[2], batches;
  int64_t start = nanoseconds();
  if (!string(request, "bundle", folder, sizeof folder)) return refuse("failed", "which bundle?");
  const char *workload = read_file(folder, "workload.json");
  const char *weights = read_file(folder, "weights.safetensors");
  const char *inputs = read_file(folder, "batches.safetensors");
  if (!workload || !weights || !inputs) return refuse("failed", "the bundle cannot be read");
  if (!string(workload, "mode", mode, sizeof mode) || strcmp(mode, "infer"))
    return refuse("unsupported", "tiny does inference only");
  model.bias = tensor(weights, "fc.bias", shape, 1);
  model.weight = tensor(weights, "fc.weight", shape, 2);
  if (!model.weight || !model.bias) return refuse("unsupported", "tiny knows one linear layer, fc");
  model.out = (int)shape[0], model.in = (int)shape[1];
  if (!integer(workload, "batches", &batches) || batches < 1 || batches > MOST_BATCHES)
    return refuse("failed", "how many batches?");
  model.batches = (int)batches, model.position = 0;
  for (int i = 0; i < model.batches; i++) {
    char name[32];
    snprintf(name, sizeof name, "%d/input/0", i);
    model.input[i] = tensor(inputs, name, shape, 2);
    if (!model.input[i] || shape[1] != model.in)
      return refuse("unsupported", "inputs of another shape");
  }
  model.rows = (int)shape[0];
  model.output = malloc(sizeof(float) * (size_t)model.rows * (size_t)model.out);
  model.loaded = 1;
  double seconds = (double)(nanoseconds() - start) * 1e-9;
  printf("{\"ok\":true,\"phases\":{\"load\":%.9f},\"artifact_bytes\":null,", seconds);
  printf("\"cached\":false,\"protocol\":3,\"notes\":[]}\n");
}

/* Write the outputs of these batches; of the last iteration where there are none. */
static void write_outputs(const char *request, const long *batches, int count) {
  char path[PATH];
  size_t size = sizeof(float) * (size_t)model.rows * (size_t)model.out, end = 0;
  const int last = batches == NULL;
  if (!string(request, "file", path, sizeof path)) return refuse("failed", "which file?");
  FILE *file = fopen(path, "wb");
  if (file == NULL) return refuse("failed", "the file cannot be written");
  char *header = malloc(128 * (size_t)count + 3);
  size_t length = (size_t)sprintf(header, "{");
  for (int step = 0; step < count; step++, end += size)
    length += (size_t)sprintf(header + length,
                              "%s\"%.0d%soutput/0\":{\"dtype\":\"F32\",\"shape\":[%d,%d],"
                              "\"data_offsets\":[%zu,%zu]}",
                              step ? "," : "", step, last ? "" : step ? "/" : "0/", model.rows,
                              model.out, end, end + size);
  length += (size_t)sprintf(header + length, "}");
  uint64_t written = length;
  size_t wrong = fwrite(&written, 1, sizeof written, file) != sizeof written;
  wrong += fwrite(header, 1, length, file) != length;
  for (int step = 0; step < count; step++) {
    if (!last) forward(model.input[batches[step]]);
    wrong += fwrite(model.output, 1, size, file) != size;
  }
  free(header);
  if (fclose(file) != 0 || wrong) return refuse("failed", "the file could not be written whole");
  printf("{\"ok\":true}\n");
}

static void outputs(const char *request) {
  long batches[MOST_BATCHES];
  int count = integers(request, "batches", batches, MOST_BATCHES);
  if (count < 0) return refuse("failed", "which batches?");
  for (int step = 0; step < count; step++)
    if (batches[step] < 0 || batches[step] >= model.batches)
      return refuse("failed", "there is no such batch");
  write_outputs(request, batches, count);
  model.position = 0;
}

/* ---------------------------------------------------------------- what a block is challenged to */

/* The hash of docs/extend/protocol.md. */
static uint32_t hashed(uint32_t number) {
  uint32_t hash = number * 0x9E3779B1u;
  hash = (hash ^ (hash >> 16)) * 0x85EBCA6Bu;
  hash = (hash ^ (hash >> 13)) * 0xC2B2AE35u;
  return hash ^ (hash >> 16);
}

/* The weight of an output's element. */
static double weight(uint32_t element) { return hashed(element) / 2147483648.0 - 1.0; }

static double weighted_sum(void) {
  double sum = 0;
  for (int i = 0; i < model.rows * model.out; i++) sum += model.output[i] * weight((uint32_t)i);
  return sum;
}

enum { WINDOWS = 1 << 16 };

static struct {
  int given, chained;
  long start, length, seed;
  double chain, previous; /* NAN before the first result */
  float *row, *saved[MOST_BATCHES];
} marks;

static void copy_part(float *to, const float *from, int to_pitch, int from_pitch) {
  for (int row = 0; row < model.rows; row++)
    memcpy(to + row * to_pitch, from + row * from_pitch, sizeof(float) * (size_t)marks.length);
}

static int number(const char *text, const char *key, double *into) {
  const char *at = value(text, key);
  return at != NULL && sscanf(at, "%lf", into) == 1;
}

static const char *begin_marks(const char *challenge) {
  const char *given = value(challenge, "marks");
  double low, high;
  long input = -1;
  marks.given = 0;
  if (given == NULL || *given != '{') return NULL;
  if (!integer(given, "input", &input) || input != 0) return "there is no such input";
  if (!integer(given, "start", &marks.start) || !integer(given, "length", &marks.length) ||
      marks.start < 0 || marks.length < 0 || marks.start + marks.length > model.in)
    return "a mark does not lie in a sample";
  if (!number(given, "low", &low) || !number(given, "high", &high) ||
      !integer(given, "seed", &marks.seed))
    return "which values?";
  marks.given = 1;
  marks.chained = number(given, "chain", &marks.chain);
  if (!number(given, "previous", &marks.previous)) marks.previous = NAN;
  long size = model.rows * marks.length + WINDOWS;
  marks.row = malloc(sizeof(float) * (size_t)size);
  for (long i = 0; i < size; i++)
    marks.row[i] =
        (float)(low + (high - low) * (hashed((uint32_t)(marks.seed + i)) / 4294967296.0));
  for (int i = 0; i < model.batches; i++) {
    marks.saved[i] = malloc(sizeof(float) * (size_t)(model.rows * marks.length + 1));
    copy_part(marks.saved[i], model.input[i] + marks.start, (int)marks.length, model.in);
  }
  return NULL;
}

static void write_marks(void) {
  if (!marks.given) return;
  uint32_t cell = 0;
  if (marks.chained && isfinite(marks.previous / marks.chain))
    cell = (uint32_t)(int64_t)floor(marks.previous / marks.chain);
  uint32_t window = hashed(hashed((uint32_t)(marks.seed + model.position)) + cell) % WINDOWS;
  float *input = model.input[model.position % model.batches];
  copy_part(input + marks.start, marks.row + window, model.in, (int)marks.length);
}

static void end_marks(void) {
  for (int i = 0; marks.given && i < model.batches; i++) {
    copy_part(model.input[i] + marks.start, marks.saved[i], model.in, (int)marks.length);
    free(marks.saved[i]);
  }
  if (marks.given) free(marks.row);
}

static void time_iterations(const char *request) {
  long iterations, warmup, first;
  const char *challenge = value(request, "challenge"), *wrong;
  int challenged = challenge != NULL && *challenge == '{';
  if (!integer(request, "iterations", &iterations) || iterations < 1)
    return refuse("failed", "how many iterations?");
  if (!integer(request, "warmup", &warmup)) return refuse("failed", "how many untimed ones?");
  int64_t *samples = malloc(sizeof(int64_t) * (size_t)iterations);
  if (samples == NULL) return refuse("out_of_memory", "no room for so many samples");
  double *results = malloc(sizeof(double) * (size_t)(iterations + warmup));
  if (results == NULL) return refuse("out_of_memory", "no room for so many results");
  if (challenged) {
    if (!integer(challenge, "first", &first) || first < 0) return refuse("failed", "from which one?");
    model.position = (int)first;
    if ((wrong = begin_marks(challenge)) != NULL) return refuse("failed", wrong);
  }
  for (long i = 0; i < warmup + iterations; i++) {
    if (challenged) write_marks();
    int64_t start = nanoseconds();
    iterate();
    int64_t spent = nanoseconds() - start;
    if (i >= warmup) samples[i - warmup] = spent;
    marks.previous = results[i] = challenged ? weighted_sum() : 0;
  }
  printf("{\"ok\":true,\"results\":[");
  for (long i = 0; challenged && i < warmup + iterations; i++)
    printf("%s%.17g", i ? "," : "", results[i]);
  if (challenged) end_marks();
  printf("],\"host_ns\":[");
  for (long i = 0; i < iterations; i++) printf("%s%lld", i ? "," : "", (long long)samples[i]);
  if (isfinite(model.output[0]))
    printf("],\"device_ns\":null,\"last\":%.9g}\n", model.output[0]);
  else
    printf("],\"device_ns\":null,\"last\":null}\n");
  free(samples);
  free(results);
}

int main(void) {
  char *line = NULL, wanted[32];
  size_t size = 0;
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* in the middle of a request, too, it ends with its parent */
#endif
  while (getline(&line, &size, stdin) > 0) {
    if (*blanks(line) != '{' || !string(line, "do", wanted, sizeof wanted))
      refuse("failed", "the request is not understood");
    else if (!strcmp(wanted, "quit"))
      return printf("{\"ok\":true}\n") < 0;
    else if (!strcmp(wanted, "load"))
      load(line);
    else if (strcmp(wanted, "outputs") && strcmp(wanted, "time") && strcmp(wanted, "memory") &&
             strcmp(wanted, "result"))
      refuse("unknown_request", "tiny does not know this request");
    else if (!model.loaded)
      refuse("failed", "nothing is loaded yet");
    else if (!strcmp(wanted, "outputs"))
      outputs(line);
    else if (!strcmp(wanted, "result"))
      write_outputs(line, NULL, 1);
    else if (!strcmp(wanted, "time"))
      time_iterations(line);
    else
      printf("{\"ok\":true,\"allocated_peak\":null}\n");
    fflush(stdout);
  }
  return 0;
}
