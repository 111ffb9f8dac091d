// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/policy"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// queryTimeout bounds all queries of a policy together: the loop waits for them.
const queryTimeout = 2 * time.Second

// queryAll makes all Prometheus queries of a policy concurrently and returns the first in its list that does not pass. A
// server that does not answer does not pass.
func queryAll(ctx context.Context, p *v1alpha1.DeploymentPolicy, endpoints Endpoints) *rollout.Why {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	gates := p.Spec.Health.Prometheus
	errs := make([]error, len(gates))
	var queries sync.WaitGroup
	for i := range gates {
		queries.Go(func() { errs[i] = queryGate(ctx, &gates[i], endpoints) })
	}
	queries.Wait()
	for i, err := range errs {
		if err != nil {
			text := fmt.Sprintf("gate %s: %v", gates[i].Name, err)
			return &rollout.Why{Reason: rollout.ReasonHealthGate, About: policy.Kind + " " + p.Name, Text: text[:min(len(text), 300)]}
		}
	}
	return nil
}

// newHTTPClient returns a client that does not follow an allowed server to another one.
func newHTTPClient(token string) *http.Client {
	return &http.Client{
		Transport:     bearerTransport{token},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearerTransport adds a token to each request, unless it is empty.
type bearerTransport struct{ token string }

// RoundTrip sends a request.
func (t bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return api.DefaultRoundTripper.RoundTrip(r)
}

// queryGate makes the query of one gate. The error says why the gate does not pass.
func queryGate(ctx context.Context, g *v1alpha1.PrometheusGate, endpoints Endpoints) error {
	address, err := endpoints.resolve(g.URL)
	if err != nil {
		return err
	}
	token, err := endpoints.readToken(address)
	if err != nil {
		return err
	}
	c, err := api.NewClient(api.Config{Address: address, Client: newHTTPClient(token)})
	if err != nil {
		return fmt.Errorf("%s cannot be asked: %w", g.URL, err)
	}
	value, _, err := prometheus.NewAPI(c).Query(ctx, g.Query, time.Time{})
	if err != nil {
		return fmt.Errorf("%s cannot be asked: %w", g.URL, err)
	}
	switch v := value.(type) {
	case *model.Scalar:
		return checkBounds(g, float64(v.Value), "")
	case model.Vector:
		if len(v) == 0 {
			return errors.New("the query gives no result")
		}
		for _, s := range v {
			if err := checkBounds(g, float64(s.Value), s.Metric.String()); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("the query gives a %s, and must give numbers", value.Type())
}

func checkBounds(g *v1alpha1.PrometheusGate, value float64, metric string) error {
	if metric != "" {
		metric = " for " + metric
	}
	number := strconv.FormatFloat(value, 'g', 6, 64)
	for _, bound := range []struct {
		limit *v1alpha1.Decimal
		sign  float64
		words string
	}{{g.AtMost, 1, "most"}, {g.AtLeast, -1, "least"}} {
		if bound.limit == nil {
			continue
		}
		limit, err := strconv.ParseFloat(string(*bound.limit), 64)
		if err != nil {
			return fmt.Errorf("%s is not a number", *bound.limit)
		}
		if math.IsNaN(value) || bound.sign*value > bound.sign*limit {
			return fmt.Errorf("the query gives %s%s, and must give at %s %s", number, metric, bound.words, *bound.limit)
		}
	}
	return nil
}
