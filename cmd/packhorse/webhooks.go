package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"packhorse/api"
	"packhorse/engine"
	"packhorse/engine/outbound"
	"packhorse/engine/webhook"
)

// webhookFlags configure the delivery of events.
type webhookFlags struct {
	GiveUp time.Duration `help:"How long to retry an undelivered event before it becomes a dead letter." default:"24h"`
}

// webhooksCommand groups the subcommands for undelivered events.
type webhooksCommand struct {
	List  webhooksListCommand  `cmd:"" help:"List the webhooks: pending events, last error, dead letters."`
	Retry webhooksRetryCommand `cmd:"" help:"Retry dead letters."`
}

type webhooksListCommand struct {
	Org  string `help:"Only webhooks of this organization." placeholder:"ORG" is:"name"`
	Dead bool   `help:"Print each dead letter, too."`
	JSON bool   `help:"Print one JSON object a line: webhooks and dead letters." name:"json"`

	taskFlags
}

type webhooksRetryCommand struct {
	IDs []string `arg:"" optional:"" name:"id" help:"IDs of deliveries to retry, from list --dead; all dead letters if omitted." is:"text"`
	Org string   `help:"Only webhooks of this organization." placeholder:"ORG" is:"name"`
	URL string   `help:"Only deliveries to this webhook." placeholder:"URL" name:"url" is:"text"`

	taskFlags
}

// webhooksArgs are the arguments of both tasks.
type webhooksArgs struct {
	Org, URL   string
	IDs        []string
	Dead, JSON bool
}

// Run lists through the server that has the folder open, or opens it itself.
func (c webhooksListCommand) Run(ctx context.Context, to streams) error {
	return c.run(ctx, "webhooks-list", webhooksArgs{Org: c.Org, Dead: c.Dead, JSON: c.JSON}, to)
}

// Run requests a retry, from the server that has the folder open, or from the one that opens it
// next.
func (c webhooksRetryCommand) Run(ctx context.Context, to streams) error {
	return c.run(ctx, "webhooks-retry", webhooksArgs{Org: c.Org, URL: c.URL, IDs: c.IDs}, to)
}

// runWebhooksList prints the webhooks, and with Dead all dead letters after them.
func runWebhooksList(ctx context.Context, host *engine.Host, args webhooksArgs, out io.Writer) error {
	lines := json.NewEncoder(out)
	for status, err := range host.Webhooks().List(ctx) {
		if err != nil {
			return fmt.Errorf("list webhooks: %w", err)
		}
		if args.Org != "" && status.Org != args.Org {
			continue
		}
		if args.JSON {
			err = lines.Encode(status)
		} else {
			_, err = fmt.Fprintln(out, describeHook(&status))
		}
		if err != nil {
			return err
		}
	}
	if !args.Dead {
		return nil
	}
	for letter, err := range host.Webhooks().Letters(ctx, args.Org) {
		if err != nil {
			return fmt.Errorf("list dead letters: %w", err)
		}
		if args.JSON {
			err = lines.Encode(letter)
		} else {
			_, err = fmt.Fprintln(out, describeLetter(&letter))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func describeHook(status *webhook.Status) string {
	parts := []string{fmt.Sprintf("%s %s: %d parked, %s behind, %d dead", status.Org, status.URL,
		status.Parked, quantity(status.Behind, "transaction"), status.Dead)}
	if !status.Oldest.IsZero() {
		parts = append(parts, "oldest since "+status.Oldest.UTC().Format(time.RFC3339))
	}
	if status.LastError != "" {
		parts = append(parts, fmt.Sprintf("last error: %q", status.LastError))
	}
	if status.Missing {
		parts = append(parts, "not configured any more")
	}
	return strings.Join(parts, ", ")
}

func describeLetter(letter *webhook.Letter) string {
	what := fmt.Sprintf("%s %s..%s of %s", letter.Event.Ref, letter.Event.Before, letter.Event.After,
		letter.Event.Repository.URL)
	if letter.Lost {
		what = "not known"
	}
	return fmt.Sprintf("dead %s to %s %s: %s, %s, died %s, last error: %q", letter.ID, letter.Org, letter.URL,
		what, quantity(letter.Attempts, "attempt"),
		letter.Died.UTC().Format(time.RFC3339), letter.Error)
}

// runWebhooksRetry sends dead letters again.
func runWebhooksRetry(ctx context.Context, host *engine.Host, args webhooksArgs, out io.Writer) error {
	count, more, err := host.Webhooks().Retry(ctx, webhook.Selection{Org: args.Org, URL: args.URL, IDs: args.IDs})
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	if len(args.IDs) > 0 && count == 0 {
		return fmt.Errorf("there is no dead letter %s: webhooks list --dead prints their IDs", strings.Join(args.IDs, ", "))
	}
	if count == 0 {
		if err := checkHook(ctx, host, args); err != nil {
			return err
		}
	}
	text := quantity(count, "dead letter") + " will be sent again"
	if more {
		text += "; there are more, for another call"
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// checkHook returns an error if the organization and the URL of args are those of no webhook.
func checkHook(ctx context.Context, host *engine.Host, args webhooksArgs) error {
	if args.Org == "" && args.URL == "" {
		return nil
	}
	for status, err := range host.Webhooks().List(ctx) {
		if err != nil {
			return fmt.Errorf("list webhooks: %w", err)
		}
		if (args.Org == "" || status.Org == args.Org) && (args.URL == "" || status.URL == args.URL) {
			return nil
		}
	}
	what := "no webhook"
	if args.URL != "" {
		what += " " + args.URL
	}
	if args.Org != "" {
		what += " of organization " + args.Org
	}
	return fmt.Errorf("%s has had an event: webhooks list prints those that have", what)
}

// webhooks returns the configuration of webhooks.
func (s *server) webhooks() (engine.WebhookConfig, error) {
	guard, err := outbound.ParseGuard(s.flags.Upstream.UpstreamAllow)
	if err != nil {
		return engine.WebhookConfig{}, err
	}
	return engine.WebhookConfig{
		Guard: guard, GiveUp: orNone(s.flags.Webhook.GiveUp), Hooks: func(org string) []webhook.Hook {
			config, ok := s.tokens.OrgConfig(org)
			if !ok {
				return nil
			}
			hooks := make([]webhook.Hook, len(config.Webhooks))
			for i, hook := range config.Webhooks {
				hooks[i] = webhook.Hook{URL: hook.URL, Secret: hook.Secret}
			}
			return hooks
		},
	}, nil
}

// webhookFigures are the metrics of deliveries.
func webhookFigures(host *engine.Host) []api.Figure {
	figure := func(name, help string, counter bool, value func(webhook.Stats) float64) api.Figure {
		return api.Figure{Name: "webhook_" + name, Help: help, Counter: counter, Value: func() float64 {
			return value(host.Webhooks().Stats())
		}}
	}
	lag := func(name, help string, labels map[string]string, value func(webhook.Lag) float64) api.Figure {
		return api.Figure{Name: name, Help: help, Labels: labels, Value: func() float64 {
			return value(host.Webhooks().Lag())
		}}
	}
	const hooksHelp = "Webhooks with an event that was not tried for more than a minute (late), or that is retried (failing)."
	return []api.Figure{
		figure("deliveries_total", "Events delivered to webhooks.", true, func(s webhook.Stats) float64 {
			return float64(s.Delivered)
		}),
		figure("failures_total", "Failed attempts to deliver an event.", true, func(s webhook.Stats) float64 {
			return float64(s.Failed)
		}),
		figure("dead_total", "Events given up as dead letters.", true, func(s webhook.Stats) float64 {
			return float64(s.Dead)
		}),
		figure("pending", "Events in delivery or waiting for a retry.", false, func(s webhook.Stats) float64 {
			return float64(s.Pending)
		}),
		lag("webhook_untried_seconds", "Age of the oldest event that was not tried, when it was last looked for.", nil,
			func(l webhook.Lag) float64 { return l.Untried.Seconds() }),
		lag("webhook_failing_seconds", "Time since the first attempt at the event that has been retried for longest.", nil,
			func(l webhook.Lag) float64 { return l.Failing.Seconds() }),
		lag("webhook_hooks", hooksHelp, map[string]string{"state": "late"},
			func(l webhook.Lag) float64 { return float64(l.LateCount) }),
		lag("webhook_hooks", hooksHelp, map[string]string{"state": "failing"},
			func(l webhook.Lag) float64 { return float64(l.FailingCount) }),
	}
}
