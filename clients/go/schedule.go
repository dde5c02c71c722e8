package fairq

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// lookInterval is the longest time between reads of the server's clock.
	lookInterval = time.Minute
	// keyMargin is how long a time's key stays taken in addition to CatchUp.
	keyMargin = 5 * time.Minute
	// problemInterval is the time until a retry after the server has refused a task.
	problemInterval = 5 * time.Second
)

// A Schedule adds a task at each of its times.  All workers with this schedule
// together add one task for each time, since the task's DedupKey contains the
// schedule's name and the time.
type Schedule struct {
	Name    string         // all workers use this name; "": the name of the Task
	Queue   string         // the queue of the tasks; "": the worker's first queue
	Task    NewTask        // with neither a Group nor NoGroup, its group is "schedule"
	Times   Times          // such as [Every]
	Zone    *time.Location // the time zone of Times; nil: UTC
	CatchUp time.Duration  // how old a missed time may be; 0: an hour, less than 0: none
}

// Times computes the times of a [Schedule].  Next returns the first time after the given
// one; the zero time: there is none.  Libraries for cron lines have schedules with this
// method.
type Times interface {
	Next(after time.Time) time.Time
}

// Every returns the multiples of an interval since 1970 in UTC. The interval is at least
// a second.
func Every(interval time.Duration) Times { return every(interval) }

type every time.Duration

func (e every) Next(after time.Time) time.Time {
	n := after.UnixNano() / int64(e)
	return time.Unix(0, (n+1)*int64(e))
}

// schedule is a Schedule of a worker that runs.
type schedule struct {
	Schedule
	seen time.Time // the times up to this one have their tasks
}

// newSchedule checks a Schedule, and sets its defaults.
func newSchedule(s Schedule, queues []string) (*schedule, error) {
	if s.Name == "" {
		s.Name = s.Task.Name
	}
	if s.Name == "" {
		return nil, errors.New("fairq: a schedule needs a Name")
	}
	if s.Times == nil {
		return nil, fmt.Errorf("fairq: the schedule %q has no Times", s.Name)
	}
	if e, is := s.Times.(every); is && time.Duration(e) < time.Second {
		return nil, fmt.Errorf("fairq: the schedule %q has an interval of less than a second", s.Name)
	}
	if err := refuse("in a schedule", append(s.Task.alone(), field{"DedupKey", s.Task.DedupKey != ""},
		field{"RunAt", !s.Task.RunAt.IsZero()}, field{"Batch", s.Task.Batch != 0},
		field{"After", len(s.Task.After) > 0})...); err != nil {
		return nil, err
	}
	if s.Queue == "" {
		s.Queue = queues[0]
	}
	if s.Task.Group == "" && !s.Task.NoGroup {
		s.Task.Group = "schedule"
	}
	if s.Zone == nil {
		s.Zone = time.UTC
	}
	if s.CatchUp == 0 {
		s.CatchUp = time.Hour
	} else if s.CatchUp < 0 {
		s.CatchUp = 0
	}
	_, err := s.at(time.Now()).encode()
	return &schedule{Schedule: s}, err
}

// at returns the task for a time.
func (s *Schedule) at(at time.Time) *NewTask {
	text := at.UTC().Format("2006-01-02T15:04:05Z")
	if at.Nanosecond() >= 1000 {
		// all clients use this format
		text = at.UTC().Format("2006-01-02T15:04:05.000000+00:00")
	}
	task := s.Task
	task.Headers = map[string]any{}
	for key, value := range s.Task.Headers {
		task.Headers[key] = value
	}
	task.Headers["schedule"], task.Headers["scheduled_at"] = s.Name, text
	task.DedupKey = "schedule " + s.Name + " " + text
	task.DedupFor = s.CatchUp + keyMargin
	return &task
}

// due returns the times until now whose tasks have not been added.  The first call
// returns only the last one.
func (s *schedule) due(now time.Time) []time.Time {
	from := now.Add(-s.CatchUp)
	if s.seen.After(from) {
		from = s.seen
	}
	var times []time.Time
	for at := s.next(from); !at.IsZero() && !at.After(now); at = s.next(at) {
		times = append(times, at)
	}
	if s.seen.IsZero() && len(times) > 1 {
		times = times[len(times)-1:]
	}
	return times
}

// next returns the next time; the zero time: there is none.
func (s *schedule) next(after time.Time) time.Time {
	at := s.Times.Next(after.In(s.Zone))
	if !at.After(after) {
		return time.Time{}
	}
	return at
}

// keepSchedules adds tasks at their times until ctx is done.
func (r *run) keepSchedules(ctx context.Context) {
	defer close(r.ticked)
	for len(r.schedules) > 0 && ctx.Err() == nil {
		pause := problemInterval
		if now, err := r.serverTime(); err != nil {
			r.Logger.Error("the schedules cannot read the server's clock", "error", explain(err).Error())
		} else {
			pause = r.tick(ctx, now)
		}
		sleep(ctx, pause)
	}
}

func (r *run) serverTime() (now time.Time, err error) {
	err = r.keeper.do(r.keeping, func(ctx context.Context, db DB) error {
		return db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	})
	return now, err
}

// tick adds the tasks that are due now.  It returns the time until the next call.
func (r *run) tick(ctx context.Context, now time.Time) time.Duration {
	pause := lookInterval
	for _, schedule := range r.schedules {
		next := lookInterval
		if err := r.addDue(ctx, schedule, now); err != nil {
			r.Logger.Error("a task of a schedule cannot be added", "schedule", schedule.Name,
				"error", explain(err).Error())
			next = problemInterval
		} else if at := schedule.next(now); !at.IsZero() {
			next = at.Sub(now)
		}
		if next < pause {
			pause = next
		}
	}
	return pause
}

// addDue adds the tasks of a schedule that are due now.
func (r *run) addDue(ctx context.Context, schedule *schedule, now time.Time) error {
	for _, at := range schedule.due(now) {
		if ctx.Err() != nil {
			return nil
		}
		if err := r.add(schedule.Queue, schedule.at(at)); err != nil {
			return err
		}
	}
	schedule.seen = now
	return nil
}

// add adds a task, unless another task has the same DedupKey.
func (r *run) add(queue string, task *NewTask) error {
	values, err := task.values(queue)
	if err != nil {
		return err
	}
	return r.keeper.do(r.keeping, func(ctx context.Context, db DB) error {
		var id int64
		return db.QueryRow(ctx, enqueueSQL+r.keeper.briefly(), values...).Scan(&id)
	})
}
