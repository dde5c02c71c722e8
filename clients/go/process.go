package fairq

import (
	"context"
	"sync"
)

// process is the gate that all workers of the process share.  Tasks run together,
// except for a task that may kill the process, which runs alone.
var process = gate{changed: make(chan struct{})}

type gate struct {
	mu      sync.Mutex
	sharing int           // tasks, and workers that are about to take tasks
	waiting int           // tasks that wait to run alone
	alone   bool          // whether a task runs alone
	changed chan struct{} // closed and replaced when one of these changes
}

// enter waits until ready returns true.  It returns false if ctx is done before
// that.
func (g *gate) enter(ctx context.Context, ready func() bool) bool {
	for {
		g.mu.Lock()
		if ready() {
			g.mu.Unlock()
			return true
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (g *gate) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

// share waits while a task runs alone, or waits to run alone.
func (g *gate) share(ctx context.Context) bool {
	return g.enter(ctx, func() bool {
		if g.alone || g.waiting > 0 {
			return false
		}
		g.sharing++
		return true
	})
}

// join shares the process once more, for a caller that already shares it.
func (g *gate) join() { g.change(func() { g.sharing++ }) }

func (g *gate) leave() { g.change(func() { g.sharing-- }) }

// exclude waits until nothing shares the process.  A task then runs alone until the
// function that exclude returns is called.  If ctx is done during the wait, the
// task must not begin.
func (g *gate) exclude(ctx context.Context) func() {
	g.change(func() { g.waiting++ })
	entered := g.enter(ctx, func() bool {
		if g.alone || g.sharing > 0 {
			return false
		}
		g.alone = true
		return true
	})
	g.change(func() { g.waiting-- })
	if !entered {
		return func() {}
	}
	return func() { g.change(func() { g.alone = false }) }
}
