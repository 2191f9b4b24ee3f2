package fair

import (
	"context"
	"time"
)

// Sleep is [Rest] for a time. It returns early, with the error of ctx, when that ends.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); d <= 0 || err != nil {
		return err
	}
	return Rest(ctx, func() error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
