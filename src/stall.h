/*
 * stall.h
 *		For tests: a point at which a backend can be held up.
 *
 * In a build with -DFAIRQ_STALL, a backend that finds a file fairq_stall.PID in
 * the data directory, with a number n in it, stops at the n-th such point that
 * it comes by, renames the file to fairq_stalled.PID and waits until it is gone.
 * So test/evict has others do something in every gap between two of them.
 * Otherwise there is nothing here.
 */
#ifndef FAIRQ_STALL_H
#define FAIRQ_STALL_H

#ifdef FAIRQ_STALL

#include <unistd.h>

#include "miscadmin.h"

static inline void
fairq_stall(void)
{
	static int	left = 0;
	char		asked[64];
	char		done[64];
	FILE	   *file;

	snprintf(asked, sizeof(asked), "fairq_stall.%d", MyProcPid);
	if (left == 0 && (file = fopen(asked, "r")) != NULL)
	{
		if (fscanf(file, "%d", &left) != 1)
			left = 0;
		fclose(file);
	}
	if (left == 0 || --left > 0)
		return;
	snprintf(done, sizeof(done), "fairq_stalled.%d", MyProcPid);
	rename(asked, done);
	while (access(done, F_OK) == 0)
		pg_usleep(1000);
}

#else

static inline void
fairq_stall(void)
{
}

#endif

#endif							/* FAIRQ_STALL_H */
