/*
 * changed.h
 *		Triggers: what a change of fairq's tables by SQL changes in hints.
 */
#ifndef FAIRQ_CHANGED_H
#define FAIRQ_CHANGED_H

extern void fairq_watch_drops(void);

#endif							/* FAIRQ_CHANGED_H */
