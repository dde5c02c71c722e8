/*
 * shares.h
 *		Shares of a queue's lanes: whose task is next by them.
 */
#ifndef FAIRQ_SHARES_H
#define FAIRQ_SHARES_H

#include "storage/spin.h"

#include "address.h"

/* greatest share of a lane */
#define FAIRQ_MAX_SHARE 1000000

/* what a claim charges that counts as one task */
#define FAIRQ_CHARGE_ONE (INT64CONST(1) << 20)

/*
 * What a lane has got: charges / share, as a whole number and a fraction, so
 * that it is exact.
 */
typedef struct FairqGot
{
	int64		whole;			/* whole rounds of share * FAIRQ_CHARGE_ONE */
	int64		part;			/* charges beyond these; from 0 to less than
								 * one round */
} FairqGot;

/* Who has got what. */
typedef struct FairqShareState
{
	uint64		version;		/* version of the settings that the shares are
								 * of */
	uint32		epoch;			/* number of times that all lanes were made
								 * even */
	int32		share[FAIRQ_PRIORITIES];	/* shares of the lanes; 0: none */
	FairqGot	got[FAIRQ_PRIORITIES];	/* what each lane has got */

	/* virtual time: what the lane served last had got before */
	struct
	{
		FairqGot	got;		/* that lane's */
		int32		share;		/* its share */
	}			reached;
} FairqShareState;

/* In shared memory, part of FairqHints. */
typedef struct FairqShares
{
	slock_t		mutex;			/* protects state */
	FairqShareState state;		/* who has got what */
} FairqShares;

/* Some services of one lane in a row. */
typedef struct FairqShareRun
{
	int			priority;		/* priority of the lane */
	int64		most;			/* tasks that are served in a row, at most */
	int64		charged;		/* what the lane was charged for them */
	FairqGot	from;			/* what it had got before */
	uint32		epoch;			/* epoch of the state then */
} FairqShareRun;

extern void fairq_share_begin(FairqShareState *state, const int32 *share,
							  uint64 version);
extern bool fairq_share_choose(FairqShareState *state, uint32 without,
							   int64 most, FairqShareRun *run);
extern void fairq_share_settle(FairqShareState *state,
							   const FairqShareRun *run, int64 served,
							   int64 charge);
extern void fairq_shares_init(FairqShares *shares);
extern void fairq_shares_copy(FairqShares *shares, const int32 *share,
							  uint64 version, FairqShareState *copy);
extern bool fairq_shares_choose(FairqShares *shares, const int32 *share,
								uint64 version, uint32 without, int64 most,
								FairqShareRun *run);
extern void fairq_shares_settle(FairqShares *shares, const FairqShareRun *run,
								int64 served, int64 charge);

#endif							/* FAIRQ_SHARES_H */
