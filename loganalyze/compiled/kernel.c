/*
 * The inner loops of text logs in C: where lines end, and many lines read by templates, each of
 * which is a list of steps (lessons.py).
 *
 * Optional. It takes exactly the lines that the numpy way takes and gives the same numbers to the
 * last bit (tests/unit/test_kernel.py holds the two equal); where there is no compiler, numpy does
 * the work. It uses nothing of Python's, holds no state and allocates nothing, so that threads may
 * run it at the same time. Every read stays below `size` bytes of `data`.
 */
#include "loops.h"

/* Constant text; a number of constant length; one of any length with a known number of decimals;
   a number in any form. The order is that of kernel.py. */
enum { TEXT, FIXED, FREE, ANY };

typedef struct {
    int32_t kind;
    int32_t length;   /* TEXT, FIXED: bytes. FREE, ANY: a number is shorter than that */
    int32_t place;    /* TEXT: where it begins in the template's text. Else: the number's slot */
    int32_t decimals; /* FIXED, FREE: digits behind the point */
    int32_t exponent; /* FIXED: whether `e+05` follows the digits */
    int32_t end;      /* FREE, ANY: the byte that ends the number. FIXED: the exponent's letter */
} Step;

typedef struct {
    const Step *steps;
    int64_t step_count;
    const uint8_t *text;
    const double *factors;  /* by slot */
    const int32_t *columns; /* by slot */
} Template;

typedef struct {
    const uint8_t *data;
    int64_t size;
    const int64_t *starts, *ends; /* of all lines of the block */
    const int64_t *lines;         /* indices of those to be read */
    int64_t count;
    const Template *templates; /* a line is read by the first that fits it */
    int64_t template_count;
    int64_t *read;       /* out: indices of the lines read, in order */
    int32_t *which;      /* out: the template of each of them */
    double *values;      /* out: (columns, count); a cell is set where the template has the slot */
    int64_t *later;      /* out: lines that fit, but whose numbers Python's side must read */
    int64_t later_count; /* out */
} Job;

/* Powers of ten that a double holds, and of five that 63 bits hold. */
#define MOST_TENS 22
#define MOST_FIVES 27
static const double TENS[MOST_TENS + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

static const uint64_t FIVES[MOST_FIVES + 1] = {
    1ull, 5ull, 25ull, 125ull, 625ull, 3125ull, 15625ull, 78125ull, 390625ull, 1953125ull,
    9765625ull, 48828125ull, 244140625ull, 1220703125ull, 6103515625ull, 30517578125ull,
    152587890625ull, 762939453125ull, 3814697265625ull, 19073486328125ull, 95367431640625ull,
    476837158203125ull, 2384185791015625ull, 11920928955078125ull, 59604644775390625ull,
    298023223876953125ull, 1490116119384765625ull, 7450580596923828125ull,
};

/* digits * 10^power; |power| <= MOST_TENS. Most numbers are whole, and a division takes longer
   than all else that is done to one. */
INLINE double times_ten(uint64_t digits, int power) {
    if (!power) return (double)digits;
    return power < 0 ? (double)digits / TENS[-power] : (double)digits * TENS[power];
}

static double power_of_two(int power) {
    uint64_t bits = (uint64_t)(1023 + power) << 52;
    double made;
    memcpy(&made, &bits, sizeof made);
    return made;
}

static int width_of(unsigned __int128 value) {
    uint64_t high = (uint64_t)(value >> 64);
    return high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll((uint64_t)value);
}

/* digits * 10^power, rounded to nearest, ties to even; |power| <= MOST_FIVES. All in integers:
   10^power is 5^power * 2^power, and a product or quotient by 5^power fits into 128 bits. */
static double scaled(uint64_t digits, int power) {
    unsigned __int128 wide;
    int two = power, inexact = 0;
    if (digits == 0) return 0.0;
    if (digits <= (uint64_t)1 << 53 && power >= -MOST_TENS && power <= MOST_TENS)
        return times_ten(digits, power);
    if (power >= 0) {
        wide = (unsigned __int128)digits * FIVES[power];
    } else {
        uint64_t divisor = FIVES[-power];
        int up = __builtin_clzll(digits);
        unsigned __int128 dividend = (unsigned __int128)(digits << up) << 63;
        wide = dividend / divisor; /* at least 2^63: enough bits to round */
        inexact = wide * divisor != dividend;
        two -= up + 63;
    }
    int drop = width_of(wide) - 53;
    if (drop <= 0) return (double)(uint64_t)wide * power_of_two(two);
    uint64_t kept = (uint64_t)(wide >> drop);
    unsigned __int128 half = (unsigned __int128)1 << (drop - 1);
    unsigned __int128 rest = wide & ((half << 1) - 1);
    if (rest > half || (rest == half && (inexact || kept & 1))) kept++;
    return (double)kept * power_of_two(two + drop);
}

INLINE uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Appends the digits from `at` on to *value; where they end. (Eight at once by word arithmetic was
   tried, and is slower on the numbers of logs.) */
INLINE const uint8_t *digits_of(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    uint64_t made = *value;
    unsigned digit;
    for (; at < end && (digit = (unsigned)*at - '0') <= 9; at++) made = made * 10 + digit;
    *value = made;
    return at;
}

/* Digits with `decimals` of them behind a point; at most 15 in all, so that nothing is lost. */
INLINE int plain_digits(const uint8_t *at, int64_t length, int decimals, uint64_t *value) {
    const uint8_t *end = at + length, *point = end - decimals - 1;
    *value = 0;
    if (!decimals) return length > 0 && digits_of(at, end, value) == end;
    return point > at && digits_of(at, point, value) == point && *point == '.' &&
           digits_of(point + 1, end, value) == end;
}

/* A number of constant length, as templates.py lays it out. */
INLINE int fixed_number(const uint8_t *at, const Step *step, double *value) {
    int64_t length = step->length - (step->exponent ? 4 : 0);
    const uint8_t *tail = at + length;
    uint64_t digits, size = 0;
    int power = -step->decimals;
    if (!plain_digits(at, length, step->decimals, &digits)) return 0;
    if (step->exponent) {
        if (tail[0] != step->end || (tail[1] != '+' && tail[1] != '-')) return 0;
        if (digits_of(tail + 2, tail + 4, &size) != tail + 4) return 0;
        power += tail[1] == '-' ? -(int)size : (int)size;
        if (power < -MOST_TENS || power > MOST_TENS) return 0;
    }
    *value = times_ten(digits, power);
    return 1;
}

/* Digits without the zeros before them. */
static int64_t significant(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == '0' || *at == '.')) at++;
    return end - at - (memchr(at, '.', (size_t)(end - at)) != 0);
}

/* A number in any form; 0 where it is not plain, or has more digits than are read here. */
static int any_number(const uint8_t *at, const uint8_t *end, double *value) {
    uint64_t digits = 0, size = 0;
    int minus = at < end && *at == '-', power = 0;
    const uint8_t *begin = at += minus;
    at = digits_of(at, end, &digits);
    if (at == begin) return 0;
    if (at < end && *at == '.') {
        const uint8_t *behind = ++at;
        at = digits_of(at, end, &digits);
        if (at == behind) return 0;
        power = (int)(behind - at);
    }
    if (at - begin > 19 && significant(begin, at) > 19) return 0; /* digits was too small */
    if (at < end) {
        if (*at != 'e' && *at != 'E') return 0;
        int down = ++at < end && *at == '-';
        at += down || (at < end && *at == '+');
        if (at == end || end - at > 3 || digits_of(at, end, &size) != end) return 0;
        power += down ? -(int)size : (int)size;
    }
    if (digits && (power < -MOST_FIVES || power > MOST_FIVES)) return 0;
    *value = scaled(digits, power);
    if (minus) *value = -*value;
    return 1;
}

/* Where a number ends: the first byte `step->end` within its length; NULL if there is none. */
static const uint8_t *end_of(const uint8_t *at, const uint8_t *limit, const Step *step) {
    int64_t room = limit - at < step->length ? limit - at : step->length;
    for (int64_t k = 0; k < room; k++)
        if (at[k] == step->end) return at + k;
    return 0;
}

/* Digits with `decimals` of them behind a point, and where they end; NULL if there are none. The
   byte that ends the number is no digit; where it is a point, the number can have none. */
INLINE const uint8_t *free_number(const uint8_t *at, const uint8_t *end, const Step *step,
                                  uint64_t *value) {
    const uint8_t *begin = at, *last = end - at < step->length ? end : at + step->length - 1;
    unsigned digit;
    *value = 0;
    at = digits_of(at, last, value);
    if (at == begin) return 0;
    if (!step->decimals) return at;
    const uint8_t *stop = at + 1 + step->decimals;
    if (stop > last || *at != '.' || step->end == '.') return 0;
    for (at++; at < stop; at++) {
        if ((digit = (unsigned)*at - '0') > 9) return 0;
        *value = *value * 10 + digit;
    }
    return at;
}

INLINE int is_digit(int32_t byte) { return (unsigned)byte - '0' <= 9; }

enum { NOT_THIS, READ, LATER };

/* Of one job; as in kernel.py. */
#define MOST_TEMPLATES 64

/* A number up to the first byte that ends it, and where that is; NULL if it is none. For those of
   any form, and where the byte is a digit. */
static __attribute__((noinline)) const uint8_t *searched(const uint8_t *at, const uint8_t *end,
                                                         const uint8_t *limit, const Step *step,
                                                         double *number, int *state) {
    const uint8_t *stop = end_of(at, limit, step);
    uint64_t digits;
    if (!stop || stop == at || stop > end) return 0;
    if (step->kind == ANY) {
        if (!any_number(at, stop, number)) *state = LATER;
        return stop;
    }
    if (!plain_digits(at, stop - at, step->decimals, &digits)) return 0;
    *number = times_ten(digits, -step->decimals);
    return stop;
}

/* Whether two texts are the same; most are, so that one look at the end is enough. */
INLINE int same(const uint8_t *one, const uint8_t *other, int64_t length) {
    uint64_t apart = 0;
    if (length < 8) {
        for (int64_t k = 0; k < length; k++) apart |= one[k] ^ other[k];
        return !apart;
    }
    for (int64_t k = 0; k + 8 < length; k += 8) apart |= word_at(one + k) ^ word_at(other + k);
    return !(apart | (word_at(one + length - 8) ^ word_at(other + length - 8)));
}

/* The longest text before the first number of free length: its place is the same on all lines,
   so it tells at once which lines are not of this template. */
typedef struct {
    const Step *step;
    int64_t offset;
} Probe;

static Probe probe_of(const Template *template) {
    Probe best = {0, 0};
    int64_t offset = 0;
    const Step *last = template->steps + template->step_count;
    for (const Step *step = template->steps; step < last; step++) {
        if (step->kind != TEXT && step->kind != FIXED) break;
        if (step->kind == TEXT && (!best.step || step->length > best.step->length))
            best = (Probe){step, offset};
        offset += step->length;
    }
    return best;
}

/* One line; its numbers go into row `row` of the values. */
INLINE int line_of(const Job *job, const Template *template, int64_t line, int64_t row) {
    const uint8_t *at = job->data + job->starts[line], *end = job->data + job->ends[line];
    const uint8_t *limit = job->data + job->size;
    const Step *last = template->steps + template->step_count;
    int state = READ;
    for (const Step *step = template->steps; step < last; step++) {
        double number = 0.0;
        if (step->kind == TEXT || step->kind == FIXED) {
            if (end - at < step->length) return NOT_THIS;
            if (step->kind == TEXT && !same(at, template->text + step->place, step->length))
                return NOT_THIS;
            if (step->kind == FIXED && !fixed_number(at, step, &number)) return NOT_THIS;
            at += step->length;
        } else {
            const uint8_t *stop;
            if (step->kind == FREE && !is_digit(step->end)) {
                uint64_t digits;
                stop = free_number(at, end, step, &digits);
                if (!stop || stop == limit || *stop != step->end) return NOT_THIS;
                number = times_ten(digits, -step->decimals);
            } else if (!(stop = searched(at, end, limit, step, &number, &state))) {
                return NOT_THIS;
            }
            at = stop;
        }
        if (step->kind != TEXT) {
            double *column = job->values + template->columns[step->place] * job->count;
            column[row] = number * template->factors[step->place];
        }
    }
    return at == end ? state : NOT_THIS;
}

/* Whether a line may be of a template. */
INLINE int may_be(const Job *job, const Template *template, const Probe *probe, int64_t line) {
    if (!probe->step) return 1;
    int64_t length = probe->step->length;
    if (job->ends[line] - job->starts[line] < probe->offset + length) return 0;
    const uint8_t *at = job->data + job->starts[line] + probe->offset;
    return same(at, template->text + probe->step->place, length);
}

/* Reads all lines of a job; how many were read. Templates beyond MOST_TEMPLATES are not tried. */
API TWICE int64_t loganalyze_read(Job *job) {
    Probe probes[MOST_TEMPLATES];
    int64_t done = 0, count = job->template_count;
    job->later_count = 0;
    if (count > MOST_TEMPLATES) count = MOST_TEMPLATES;
    for (int64_t k = 0; k < count; k++) probes[k] = probe_of(job->templates + k);
    for (int64_t k = 0; k < job->count; k++) {
        int64_t line = job->lines[k];
        int state = NOT_THIS;
        for (int32_t n = 0; n < count && state == NOT_THIS; n++) {
            const Template *template = job->templates + n;
            if (may_be(job, template, probes + n, line)) state = line_of(job, template, line, done);
            job->which[done] = n;
        }
        if (state == READ) job->read[done++] = line;
        if (state == LATER) job->later[job->later_count++] = line;
    }
    return done;
}

/* Where the line feeds are; at most `room` of them are told, all are counted. */
API int64_t loganalyze_breaks(const uint8_t *data, int64_t size, int64_t *places, int64_t room) {
    const uint8_t *at = data, *end = data + size;
    int64_t count = 0;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
        if (count < room) places[count] = at - data;
        count++;
        at++;
    }
    return count;
}

/* Which source this was made of (crc32), so that an old library is not used with a new template. */
API uint32_t loganalyze_source(void) { return LOGANALYZE_SOURCE; }
