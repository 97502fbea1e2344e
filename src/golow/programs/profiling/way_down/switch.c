/* Switches callgrind's counting on and off; without Valgrind both functions do nothing. */
#include <valgrind/callgrind.h>

void golow_begin(void) { CALLGRIND_START_INSTRUMENTATION; }

void golow_end(void) {
  CALLGRIND_STOP_INSTRUMENTATION;
  CALLGRIND_DUMP_STATS_AT("end");
}
