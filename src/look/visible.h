/*
 * visible.h
 *		Which queues a caller may see something of.
 */
#ifndef FAIRQ_VISIBLE_H
#define FAIRQ_VISIBLE_H

extern Datum fairq_visible_ids(int any_privilege);

#endif							/* FAIRQ_VISIBLE_H */
