/*
 * text.h
 *		Texts, compared by their bytes.
 */
#ifndef FAIRQ_TEXT_H
#define FAIRQ_TEXT_H

#include "compat.h"

/* Of texts that are not toasted: are they the same? */
static inline bool
fairq_text_equal(const text *a, const text *b)
{
	return VARSIZE_ANY_EXHDR(a) == VARSIZE_ANY_EXHDR(b) &&
		memcmp(VARDATA_ANY(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(a)) == 0;
}

#endif							/* FAIRQ_TEXT_H */
