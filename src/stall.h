/*
 * stall.h
 *		For tests: a point at which a backend can be held up.
 *
 * In a build with -DFAIRQ_STALL, a backend that finds a file fairq_stall.PID in
 * the data directory, with a kind and a number n in it, stops at the n-th point
 * of that kind that it comes by, renames the file to fairq_stalled.PID and waits
 * until it is gone.  Kinds are
 *
 * entry	after a look into the cache, under the lane's lock: test/evict has
 *			others do something in every gap between two of them, in other lanes
 * claim	between the choice of a row and its change, without a lock:
 *			test/suite/claims
 * reading	of a group, in the middle, likewise
 *
 * Points of one kind are in one file, which counts them.  Otherwise there is
 * nothing here.
 */
#ifndef FAIRQ_STALL_H
#define FAIRQ_STALL_H

#ifdef FAIRQ_STALL

#include <unistd.h>

#include "miscadmin.h"

static inline void
fairq_stall(const char *kind)
{
	static int	left = 0;
	static char asked_for[16];
	char		asked[64];
	char		done[64];
	FILE	   *file;

	snprintf(asked, sizeof(asked), "fairq_stall.%d", MyProcPid);
	file = fopen(asked, "r");
	if (file == NULL)
		left = 0;
	else
	{
		if (left == 0 && fscanf(file, "%15s %d", asked_for, &left) != 2)
			left = 0;
		fclose(file);
	}
	if (left == 0 || strcmp(kind, asked_for) != 0 || --left > 0)
		return;
	snprintf(done, sizeof(done), "fairq_stalled.%d", MyProcPid);
	rename(asked, done);
	while (access(done, F_OK) == 0)
		pg_usleep(1000);
}

#else

static inline void
fairq_stall(const char *kind)
{
}

#endif

#endif							/* FAIRQ_STALL_H */
