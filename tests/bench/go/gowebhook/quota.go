package main

import (
	"context"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits that the benchmark does not reach, and the cost of each of its Pods, both in Pods and in millicores.
const (
	hardPods     = 100_000_000
	hardMillis   = 100_000_000_000
	costMillis   = 750
	window       = time.Hour
	redisTimeout = 10 * time.Second
)

// Quota charges Pods to two limits in Redis, by one call of a script.
type Quota struct {
	client *redis.Client
	script *redis.Script
}

func newQuota(url, path string) (*Quota, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	options.ReadTimeout = redisTimeout
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return &Quota{redis.NewClient(options), redis.NewScript(string(source))}, nil
}

// charge returns whether both limits had room for the Pod. The script is sent only where Redis does not have it.
func (quota *Quota) charge(ctx context.Context, namespace string) (bool, error) {
	keys := []string{"quota:{" + namespace + "}:pods", "quota:{" + namespace + "}:cpu"}
	period := window.Microseconds()
	wait, err := quota.script.Run(
		ctx, quota.client, keys, hardPods, period, 1, int64(hardMillis), period, costMillis,
	).Int64()
	return wait == 0, err
}
