package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"time"
)

// measurement is of a victim that has a server for itself, and one beside an aggressor.
type measurement struct {
	alone, beside         sample // of clients each of which asks again as soon as it has its answer
	calmAlone, calmBeside sample // of requests at a tenth of the rate alone

	ratios []float64 // of the goodput beside to half of that alone, of each round
}

// addRound adds a window of each side.
func (m *measurement) addRound(alone, beside sample) {
	m.alone.join(alone)
	m.beside.join(beside)
	m.ratios = append(m.ratios, ofHalf(alone, beside))
}

func ofHalf(alone, beside sample) float64 { return beside.goodput() / (alone.goodput() / 2) }

// ofHalf is the goodput over half of that alone.
func (m *measurement) ofHalf() float64 { return ofHalf(m.alone, m.beside) }

// ofHalfCPU is the goodput over what half of the server's CPU time allows, at the cost of an
// operation alone.
func (m *measurement) ofHalfCPU() float64 {
	perOperation := m.alone.cpu.Seconds() / float64(m.alone.count)
	return float64(m.beside.count) / (m.beside.cpu.Seconds() / 2 / perOperation)
}

// uncertainty is the standard error of ofHalf, from the scatter of the rounds.
func (m *measurement) uncertainty() float64 {
	n := float64(len(m.ratios))
	if n < 2 {
		return math.NaN()
	}
	var mean, squares float64
	for _, r := range m.ratios {
		mean += r / n
	}
	for _, r := range m.ratios {
		squares += (r - mean) * (r - mean)
	}
	return math.Sqrt(squares / (n - 1) / n)
}

// warming is how long the victim is at work before it is measured, on a new server.
const warming = time.Second

// settling is how long the clients are at work in each window before they are measured.
const settling = 100 * time.Millisecond

// measureMixture measures the victim on two servers in turns: on one it is alone, on the other
// beside the aggressor. Only one of them runs at a time. So both meet the same moments of the
// machine, and what the aggressor leaves to be done costs the victim nothing where it is alone.
func measureMixture(
	ctx context.Context, s settings, history order, mixture, dir string,
) (m measurement, err error) {
	own, closeOwn, err := openServer(ctx, s, history, mixture, installation{bin: s.alone, dir: filepath.Join(dir, "alone")})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, closeOwn()) }()
	both, closeBoth, err := openServer(ctx, s, history, mixture,
		installation{bin: s.packhorse, dir: filepath.Join(dir, "beside"), admin: s.admin})
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, closeBoth()) }()

	victim, beset := own.order(own.victim, s.victim, s.clients), both.order(both.victim, s.victim, s.clients)
	victim.prepare()
	beset.prepare()
	warm, err := own.closed(ctx, victim, warming)
	if err != nil {
		return m, err
	}
	if err := own.freeze(); err != nil {
		return m, err
	}
	if _, err = both.closed(ctx, beset, warming); err != nil {
		return m, err
	}
	if mixture != nobody {
		if err := both.attack(ctx, both.aggression(s, mixture)); err != nil {
			return m, err
		}
	}
	if err := both.freeze(); err != nil {
		return m, err
	}
	rate := warm.goodput() / 10
	for range s.rounds {
		alone, err := own.inWindow(ctx, own.closed, victim, s.window)
		if err != nil {
			return m, err
		}
		beside, err := both.inWindow(ctx, both.closed, beset, s.window)
		if err != nil {
			return m, err
		}
		calmAlone, err := own.inWindow(ctx, own.atRate(rate), victim, s.window)
		if err != nil {
			return m, err
		}
		calmBeside, err := both.inWindow(ctx, both.atRate(rate), beset, s.window)
		if err != nil {
			return m, err
		}
		m.addRound(alone, beside)
		m.calmAlone.join(calmAlone)
		m.calmBeside.join(calmBeside)
	}
	return m, nil
}

// inWindow measures while nothing else runs.
func (w *world) inWindow(
	ctx context.Context, run func(context.Context, order, time.Duration) (sample, error), o order, window time.Duration,
) (got sample, err error) {
	if err := w.thaw(); err != nil {
		return got, err
	}
	if _, err := run(ctx, o, settling); err != nil {
		return got, err
	}
	if got, err = run(ctx, o, window); err != nil {
		return got, err
	}
	return got, w.freeze()
}

// openServer is [openWorld] in a new folder, which is removed at the end.
func openServer(
	ctx context.Context, s settings, history order, mixture string, in installation,
) (_ *world, done func() error, err error) {
	if err := os.Mkdir(in.dir, 0o700); err != nil {
		return nil, nil, err
	}
	w, err := openWorld(ctx, s, history, mixture, in)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(in.dir))
	}
	return w, func() error { return errors.Join(w.close(), os.RemoveAll(in.dir)) }, nil
}
