/*
 * What the compiled loops share: how their functions are declared.
 */
#ifndef LOGANALYZE_LOOPS_H
#define LOGANALYZE_LOOPS_H

#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))
/* Made twice, for processors of the last ten years and for all, of which the loader picks one: a
   fifth faster. What it calls is made with it. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define TWICE __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define TWICE
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#endif
