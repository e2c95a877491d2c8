/* A job in plain C: payload on stdin, result on stdout, outcome by exit code.
 *
 * Copies text and replaces the digits of payment card numbers (13 to 19 digits in a row, single spaces or dashes between
 * them, with a valid Luhn checksum) by asterisks, all but the last four. Exit code 65 (EX_DATAERR) says that no further
 * attempt can succeed; the last line on stderr becomes the job's error message. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EX_DATAERR = 65, EX_TEMPFAIL = 75, FEWEST = 13, MOST = 19, KEPT = 4 };

/* Reads all of a stream; its length goes to *length. What does not fit into memory ends the run under the memory limit. */
static char *read_all(FILE *in, size_t *length) {
    size_t size = 1 << 16, used = 0;
    char *bytes = malloc(size);
    while (bytes) {
        used += fread(bytes + used, 1, size - used, in);
        if (used < size) break;
        bytes = realloc(bytes, size *= 2);
    }
    *length = used;
    return bytes;
}

/* How many bytes a run of digits takes that begins here, and at *digits how many digits it has. */
static size_t run_at(const char *text, size_t length, int *digits) {
    size_t at = 0, end = 0;
    *digits = 0;
    while (at < length) {
        if (isdigit((unsigned char)text[at])) {
            ++*digits;
            end = ++at;
        } else if (*digits > 0 && end == at && (text[at] == ' ' || text[at] == '-')) {
            ++at;
        } else {
            break;
        }
    }
    return end;
}

static int luhn(const char *text, size_t length) {
    int sum = 0, doubled = 0;
    while (length-- > 0) {
        if (!isdigit((unsigned char)text[length])) continue;
        int digit = (text[length] - '0') << doubled;
        sum += digit > 9 ? digit - 9 : digit;
        doubled = !doubled;
    }
    return sum % 10 == 0;
}

static void hide(char *text, size_t length, int digits) {
    for (size_t at = 0; at < length && digits > KEPT; ++at) {
        if (isdigit((unsigned char)text[at])) {
            text[at] = '*';
            --digits;
        }
    }
}

int main(void) {
    size_t length;
    char *text = read_all(stdin, &length);
    if (!text) {
        fprintf(stderr, "no memory for the payload\n");
        return EX_TEMPFAIL;
    }
    char *nul = memchr(text, 0, length);
    if (nul) {
        fprintf(stderr, "payload is no text: byte %zu of %zu is NUL\n", (size_t)(nul - text), length);
        return EX_DATAERR;
    }
    size_t numbers = 0;
    for (size_t at = 0; at < length;) {
        int digits;
        size_t run = run_at(text + at, length - at, &digits);
        if (digits >= FEWEST && digits <= MOST && luhn(text + at, run)) {
            hide(text + at, run, digits);
            ++numbers;
        }
        at += run ? run : 1;
    }
    fprintf(stderr, "%zu numbers redacted\n", numbers);
    if (fwrite(text, 1, length, stdout) != length) {
        fprintf(stderr, "the result was not taken\n");
        return EX_TEMPFAIL;
    }
    return 0;
}
