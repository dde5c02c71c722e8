/*
 * settings.h
 *		Settings of a queue's groups, cached in the backend.
 */
#ifndef FAIRQ_SETTINGS_H
#define FAIRQ_SETTINGS_H

#include "datatype/timestamp.h"
#include "utils/hsearch.h"

#include "pace.h"

/* The settings in effect for a group. */
typedef struct FairqSetting
{
	int32		group_no;		/* the group's number */
	int32		weight;			/* weight, from 1 to FAIRQ_MAX_WEIGHT */
	int32		limit;			/* most tasks that may run, or FAIRQ_NO_LIMIT;
								 * 0: paused */
	int32		rate;			/* most tasks that start in the queue's
								 * "per"; 0: any number */
	FairqPace	pace;			/* pace that results from rate */
	TimestampTz held_until;		/* time before which no task starts;
								 * DT_NOBEGIN: none */
} FairqSetting;

/* The settings of the groups of a queue. */
typedef struct FairqSettings
{
	/* settings that groups get from the queue */
	struct
	{
		FairqSetting setting;	/* of groups without their own settings */
		double		per;		/* span of the rates in microseconds */
		int32		burst;		/* tasks that may start at once */
		uint64		version;	/* number of times these were read */
	}			others;

	HTAB	   *own;			/* settings of groups that have some; NULL: none
								 * has */
	int32		nlimiting;		/* number of groups that have a limit, a rate or
								 * a hold of their own, or are paused */
	int32		npaused;		/* number of groups that are paused */

	/* groups whose settings our own transaction has changed */
	struct
	{
		int			n;			/* number of them; they are not read yet */
		int			max;		/* number for which there is room */
		int32	   *group_nos;	/* their numbers; NULL: no room yet */
	}			changed;
} FairqSettings;

/* A walk through the groups that have their own settings. */
typedef struct FairqSettingsWalk
{
	const FairqSettings *settings;	/* settings of the queue; NULL: no group
									 * has any */
	HASH_SEQ_STATUS status;		/* its progress */
} FairqSettingsWalk;

extern void fairq_settings_read_all(FairqSettings *settings, int32 queue_id);
extern int	fairq_settings_read(FairqSettings *settings, int32 queue_id,
								int32 *group_nos, int n);
extern bool fairq_settings_note(FairqSettings *settings, int32 group_no);
extern const FairqSetting *fairq_setting_of(const FairqSettings *settings,
											int32 group_no);
extern const FairqSetting *fairq_tenant_setting(const FairqSettings *settings,
												int32 tenant);
extern bool fairq_is_paused(const FairqSettings *settings, int32 group_no,
							int32 tenant);
extern void fairq_settings_walk(const FairqSettings *settings,
								FairqSettingsWalk *walk);
extern const FairqSetting *fairq_settings_next(FairqSettingsWalk *walk);

#endif							/* FAIRQ_SETTINGS_H */
