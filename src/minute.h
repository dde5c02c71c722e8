/*
 * minute.h
 *		What the groups of a lane were served in the last full minute.
 */
#ifndef FAIRQ_MINUTE_H
#define FAIRQ_MINUTE_H

/* Microseconds of a minute; tests build with shorter ones. */
#ifndef FAIRQ_MINUTE
#define FAIRQ_MINUTE 60000000
#endif

/* What a group was served; part of its account, and under the lane's lock. */
typedef struct FairqServed
{
	double		work;			/* what it was served in the minute per weight,
								 * less what its running tasks work from the
								 * minute's beginning on */
	float		last;			/* what it was served in the minute before */
	uint32		minute:31;		/* number of the minute */
	uint32		counts:1;		/* 1: it stood in the ordered set in that
								 * minute */
} FairqServed;

/* Sums over the groups that count, of what they were served per weight. */
typedef struct FairqServedSums
{
	int32		n;				/* number of groups */
	double		work;			/* sum of work */
	double		work_work;		/* sum of its squares */
	double		pace;			/* sum of running tasks / weight */
	double		pace_pace;		/* sum of its squares */
	double		work_pace;		/* sum of products of both */
} FairqServedSums;

/* Of a lane.  In shared memory, part of its ledger, and under the lane's lock. */
typedef struct FairqMinute
{
	int64		number;			/* number of the present minute; minute 0
								 * begins at the ledger's time 0 */
	FairqServedSums present;	/* groups that count in it */
	FairqServedSums last;		/* groups that counted in the one before, as of
								 * its end; pace is 0 */
	FairqServedSums standing;	/* groups in the ordered set; work is 0 */
} FairqMinute;

extern void fairq_minute_advance(FairqMinute *minute, int64 now);
extern bool fairq_minute_open(FairqMinute *minute, FairqServed *served,
							  double pace, bool stands, int64 now);
extern void fairq_minute_close(FairqMinute *minute, FairqServed *served,
							   double pace, bool stands, int64 now);
extern double fairq_minute_served(const FairqMinute *minute,
								  const FairqServed *served, double pace);
extern double fairq_minute_served_so_far(const FairqMinute *minute,
										 const FairqServed *served,
										 double pace, int64 now);
extern double fairq_minute_jain(const FairqMinute *minute);

#endif							/* FAIRQ_MINUTE_H */
