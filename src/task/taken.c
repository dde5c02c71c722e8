/*
 * taken.c
 *		The tasks that this transaction has taken.
 *
 * fairq.take() deletes a task's row.  Its worker can still fail or release the
 * task, in the same transaction.  Then the task is written again, from the
 * deleted row.  So a note has the row's TID and file, because CLUSTER and
 * similar commands move rows or drop deleted ones.  After such a command the
 * task cannot be found.  So a call that ends its attempt raises an error, and
 * the rollback gives the task back.
 *
 * Changes of a subtransaction that was rolled back must not count.  No code
 * here reverts them.  A note has the id of the (sub)transaction that took the
 * task, and of the one that has put it back.  The note counts while both
 * belong to the present transaction.  A task that is put back can be taken
 * again and so may have several notes.  The last one that counts is valid.
 *
 * Most transactions put no task back.  So notes form a list.  The first search
 * for one makes a hash table to find them.
 *
 * Locking: none.
 */
#include "postgres.h"

#include "access/xact.h"

#include "compat.h"
#include "grow.h"
#include "taken.h"
#include "transaction.h"

/* no note */
#define NO_NOTE (-1)

/* A task that was taken. */
typedef struct Taken
{
	int64		id;				/* id of the task */
	TimestampTz at;				/* time at which it was taken */
	int32		attempt;		/* number of the attempt that began then */
	TransactionId by;			/* transaction, or subtransaction, that has
								 * taken it */
	TransactionId ended_by;		/* the one that has ended the attempt; invalid:
								 * none has */
	int32		before;			/* earlier note of the same task; NO_NOTE:
								 * none.  Set when this one is in the index */
	ItemPointerData tid;		/* TID of the row that was deleted */
	FairqFile	file;			/* file that contains it */
} Taken;

/* The last note of a task. */
typedef struct LastNote
{
	int64		id;				/* id of the task; hash key */
	int32		note;			/* index of the note */
} LastNote;

static Taken *notes = NULL;		/* in TopTransactionContext */
static int32 nnotes = 0;
static int32 max_notes = 0;
static HTAB *last_notes = NULL; /* last notes by id; NULL: no search so far */
static int32 nindexed = 0;		/* number of notes in it */

/*
 * Record that this transaction has taken a task, whose row it has just
 * deleted.
 */
void
fairq_taken_note(FairqTable *tasks, const FairqTask *task, TimestampTz at)
{
	Taken	   *note;

	if (nnotes == max_notes)
		notes = fairq_grow(TopTransactionContext, notes, &max_notes, 16,
						   sizeof(Taken));
	note = &notes[nnotes++];
	note->id = task->id;
	note->at = at;
	note->attempt = task->attempt;
	note->by = GetCurrentTransactionId();
	note->ended_by = InvalidTransactionId;
	note->before = NO_NOTE;
	note->tid = task->tid;
	note->file = fairq_file(tasks->rel);
}

/*
 * Refuse if the table has been rewritten since: the deleted row is no longer
 * in its place.
 */
static void
check_file(FairqTable *tasks, const Taken *note)
{
	FairqFile	file = fairq_file(tasks->rel);

	if (memcmp(&file, &note->file, sizeof(FairqFile)) != 0)
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("cannot fail or release task " INT64_FORMAT ": fairq.task was rewritten after this transaction had taken it",
					   note->id),
				errhint("Roll back the transaction; the task is then ready again."));
}

/* Add the notes that are not in the index yet. */
static void
index_notes(void)
{
	if (last_notes == NULL)
		last_notes = fairq_hash(TopTransactionContext, "fairq taken tasks",
								sizeof(int64), sizeof(LastNote));
	for (; nindexed < nnotes; nindexed++)
	{
		bool		found;
		LastNote   *last = hash_search(last_notes, &notes[nindexed].id,
									   HASH_ENTER, &found);

		notes[nindexed].before = found ? last->note : NO_NOTE;
		last->note = nindexed;
	}
}

/* The note of a task that is taken and not put back; NULL: none. */
static Taken *
find_note(int64 id)
{
	LastNote   *last;

	if (nnotes == 0)
		return NULL;
	index_notes();
	last = hash_search(last_notes, &id, HASH_FIND, NULL);
	for (int32 n = last == NULL ? NO_NOTE : last->note; n != NO_NOTE;
		 n = notes[n].before)
	{
		if (!TransactionIdIsCurrentTransactionId(notes[n].by))
			continue;
		return TransactionIdIsValid(notes[n].ended_by) &&
			TransactionIdIsCurrentTransactionId(notes[n].ended_by) ? NULL :
			&notes[n];
	}
	return NULL;
}

/*
 * Find a task that this transaction has taken in an attempt (or any) and that
 * was not put back.  The row that was deleted is in tasks->locked.slot then,
 * and *task has that attempt, and is marked as taken: it has no lease.
 */
bool
fairq_taken_find(FairqTable *tasks, int64 id, int32 attempt, FairqTask *task)
{
	Taken	   *note = find_note(id);

	if (note == NULL ||
		(attempt != FAIRQ_ANY_ATTEMPT && note->attempt != attempt))
		return false;
	check_file(tasks, note);
	if (!fairq_task_find_deleted(tasks, &note->tid, note->by, task) ||
		task->id != id)
		return false;
	task->taken = true;
	/* it was leased, so the lease had expired */
	task->lapses += task->running;
	task->running = false;
	task->attempt = note->attempt;
	task->popped_at = note->at;
	return true;
}

/* Whether this transaction may put back tasks that have no rows. */
bool
fairq_taken_any(void)
{
	return nnotes > 0;
}

/* Record that the attempt of a task that was found has ended. */
void
fairq_taken_ended(const FairqTask *task)
{
	find_note(task->id)->ended_by = GetCurrentTransactionId();
}

/*
 * Forget the notes: the transaction has ended, and their memory is freed with
 * it.
 */
static void
settle(bool committed, bool all)
{
	if (!all)
		return;
	notes = NULL;
	last_notes = NULL;
	nnotes = max_notes = nindexed = 0;
}

/* Settle the tasks that a transaction has taken, at its end. */
const FairqEnding fairq_taken_ending = {.settle = settle};
