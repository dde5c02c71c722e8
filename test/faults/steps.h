/*
 * steps.h
 *		Ends a call at a chosen step.
 *
 * Each file of the extension is compiled with this file included first.
 * test/faults/steps adds a macro for each function of the server that can
 * fail.  So a call of fairq makes a step before each call of such a function,
 * and at each CHECK_FOR_INTERRUPTS().  When SQL has requested it, the n-th
 * step of the backend
 *
 *	error	fails
 *	cancel	cancels the statement, which ends at the next check for interrupts
 *
 * Nothing may fail under a spinlock or a lane's lock, or in a callback at the end
 * of a transaction.  test/faults/steps checks that no step was in such a
 * section.
 */
#ifndef FAIRQ_STEPS_H
#define FAIRQ_STEPS_H

#include <signal.h>

#include "lib/stringinfo.h"
#include "storage/lwlock.h"

#include "shadow.h"

#define FAIRQ_MAX_STEPS 20000

typedef struct FairqStep
{
	const char *name;			/* function of the server, or a macro */
	const char *file;			/* where fairq calls it */
	int			line;
} FairqStep;

typedef struct FairqSteps
{
	char		what;			/* 'e': an error, 'c': a cancel */
	bool		watched;		/* whether steps are counted */
	int			n;				/* step at which the call ends; 0: at none */
	int			passed;			/* steps so far */
	int			lane_locks;		/* locks of lanes that are held */
	int			spinlocks;
	bool		reached;		/* whether the call has made step n */
	char		wrong[256];		/* a step in a section in which nothing may
								 * fail, or "" */
	FairqStep	steps[FAIRQ_MAX_STEPS];
} FairqSteps;

/* the library has one copy of each weak symbol, whichever file defines it */
__attribute__((weak)) FairqSteps fairq_steps;

static inline void
fairq_step(const char *name, const char *file, int line)
{
	FairqSteps *steps = &fairq_steps;
	const char *place = steps->spinlocks > 0 ? "under a spinlock" :
		steps->lane_locks > 0 ? "under a lane's lock" :
		!IsTransactionState() ? "in a callback" : NULL;

	if (!steps->watched)
		return;
	if (place != NULL)
	{
		snprintf(steps->wrong, sizeof(steps->wrong), "%s:%d %s, %s", file, line,
				 name, place);
		return;
	}
	if (steps->passed < FAIRQ_MAX_STEPS)
		steps->steps[steps->passed] = (FairqStep) {name, file, line};
	if (++steps->passed != steps->n)
		return;
	steps->reached = true;
	if (steps->what == 'c')
		raise(SIGINT);
	else
		ereport(ERROR, errcode(ERRCODE_IO_ERROR), errmsg("ended at %s", name));
}

/* A copy of a lane has its own lock, which an error discards with the copy. */
static inline void
fairq_step_lock(const LWLock *lock, const char *name, int by)
{
	if (strcmp(name, "&lane->lock") == 0 && !fairq_in_shadow(lock))
		fairq_steps.lane_locks += by;
}

#define FAIRQ_STEPS_FUNCTION(name) \
	PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
	PGDLLEXPORT const Pg_finfo_record *pg_finfo_##name(void); \
	__attribute__((weak)) const Pg_finfo_record * \
	pg_finfo_##name(void) \
	{ \
		static const Pg_finfo_record version = {1}; \
		return &version; \
	} \
	__attribute__((weak)) Datum \
	name(PG_FUNCTION_ARGS)

FAIRQ_STEPS_FUNCTION(steps_arm)
{
	memset(&fairq_steps, 0, sizeof(fairq_steps));
	fairq_steps.n = PG_GETARG_INT32(1);
	fairq_steps.what = *text_to_cstring(PG_GETARG_TEXT_PP(0));
	fairq_steps.watched = true;
	PG_RETURN_VOID();
}

/* Returns, after a call, whether it has reached the step. */
FAIRQ_STEPS_FUNCTION(steps_reached)
{
	fairq_steps.watched = false;
	PG_RETURN_BOOL(fairq_steps.reached);
}

/* All steps that the call has taken, one per line. */
FAIRQ_STEPS_FUNCTION(steps_passed)
{
	StringInfoData lines;

	initStringInfo(&lines);
	for (int i = 0; i < Min(fairq_steps.passed, FAIRQ_MAX_STEPS); i++)
		appendStringInfo(&lines, "%s:%d %s\n", fairq_steps.steps[i].file,
						 fairq_steps.steps[i].line, fairq_steps.steps[i].name);
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}

FAIRQ_STEPS_FUNCTION(steps_wrong)
{
	PG_RETURN_TEXT_P(cstring_to_text(fairq_steps.wrong));
}

/* a search for an entry cannot fail */
#define hash_search(table, key, action, found) \
	((action) == HASH_FIND ? (void) 0 : \
	 fairq_step("hash_search", __FILE__, __LINE__), \
	 hash_search(table, key, action, found))

#undef CHECK_FOR_INTERRUPTS
#define CHECK_FOR_INTERRUPTS() \
	do { \
		fairq_step("CHECK_FOR_INTERRUPTS", __FILE__, __LINE__); \
		if (InterruptPending) \
			ProcessInterrupts(); \
	} while (0)

#define LWLockAcquire(lock, mode) \
	(fairq_step_lock(lock, #lock, 1), LWLockAcquire(lock, mode))
#define LWLockRelease(lock) \
	(fairq_step_lock(lock, #lock, -1), LWLockRelease(lock))
#undef SpinLockAcquire
#undef SpinLockRelease
#define SpinLockAcquire(lock) \
	do { fairq_steps.spinlocks++; S_LOCK(lock); } while (0)
#define SpinLockRelease(lock) \
	do { S_UNLOCK(lock); fairq_steps.spinlocks--; } while (0)

#endif
