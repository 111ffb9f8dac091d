// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/rollout"
)

// queryTimeout bounds all queries of a policy together: the loop waits for them.
const queryTimeout = 2 * time.Second

// What an answer of a Prometheus server may have, and how many are read at a time. Who edits policies may name any Service.
const (
	maxAnswer       = 1 << 20
	maxAnswerHeader = 64 << 10
	parallelQueries = 4
)

// maxGateText is the most bytes of the sentence about a gate.
const maxGateText = 300

// errFalse is wrapped by errors of gates whose results are outside their threshold.
var errFalse = errors.New("outside the threshold")

// falseError says which result is outside a threshold.
type falseError string

func (e falseError) Error() string        { return string(e) }
func (e falseError) Is(target error) bool { return target == errFalse }

// queryAll makes all Prometheus queries of a policy, some at a time, and returns the first gates in its list that do not pass. A
// server that does not answer does not pass.
func queryAll(ctx context.Context, p *v1alpha1.DeploymentPolicy, endpoints Endpoints) (found findings) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	gates := p.Spec.Health.Prometheus
	errs := make([]error, len(gates))
	slots := make(chan struct{}, parallelQueries)
	var queries sync.WaitGroup
	for i := range gates {
		queries.Go(func() {
			slots <- struct{}{}
			errs[i] = queryGate(ctx, &gates[i], endpoints)
			<-slots
		})
	}
	queries.Wait()
	for i, err := range errs {
		if err != nil {
			text := rollout.Truncate(fmt.Sprintf("gate %s: %v", gates[i].Name, err), maxGateText)
			found.add(finding{text: text, isFalse: errors.Is(err, errFalse)}.classify(p, gates[i].OnFailure))
		}
	}
	return found
}

// newHTTPClient returns a client that does not follow an allowed server to another one.
func newHTTPClient(token string) *http.Client {
	return &http.Client{
		Transport:     bearerTransport{token},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded is the transport of all queries. It asks for no compression, so that a small answer cannot become a large one.
var bounded = sync.OnceValue(func() http.RoundTripper {
	plain, ok := api.DefaultRoundTripper.(*http.Transport)
	if !ok {
		return api.DefaultRoundTripper
	}
	plain = plain.Clone()
	plain.DisableCompression, plain.MaxResponseHeaderBytes = true, maxAnswerHeader
	return plain
})

// bearerTransport adds a token to each request, unless it is empty, and bounds the answer.
type bearerTransport struct{ token string }

// RoundTrip sends a request.
func (t bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	answer, err := bounded().RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
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
		return fmt.Errorf("%s cannot be asked%s: %w", g.URL, explainRefusal(err, token != ""), err)
	}
	switch v := value.(type) {
	case *model.Scalar:
		return checkBounds(g, float64(v.Value), "")
	case model.Vector:
		if len(v) == 0 {
			return errors.New("the query gives no result")
		}
		return checkVector(g, v)
	}
	return fmt.Errorf("the query gives a %s, and must give numbers", value.Type())
}

// explainRefusal says what is to be changed when a server behind https and the operator do not trust one another; nothing for other errors.
func explainRefusal(err error, hasToken bool) string {
	var unknown x509.UnknownAuthorityError
	var tooLarge *http.MaxBytesError
	var answer *prometheus.Error
	isDenied := errors.As(err, &answer) && (strings.HasSuffix(answer.Msg, ": 401") || strings.HasSuffix(answer.Msg, ": 403"))
	switch {
	case errors.As(err, &unknown):
		return ", because no known authority signed its certificate (SSL_CERT_DIR names the folder of a private one)"
	case errors.As(err, &tooLarge):
		return ", because its answer has more than 1 MiB (aggregate the query)"
	case isDenied && hasToken:
		return ", because it refuses the token of prometheusTokenFile"
	case isDenied:
		return ", because it wants a token, and gets none (only https servers that prometheusEndpoints names get that of prometheusTokenFile)"
	}
	return ""
}

// checkVector checks each result. One outside the threshold comes before one that is no number.
func checkVector(g *v1alpha1.PrometheusGate, v model.Vector) (first error) {
	for _, s := range v {
		err := checkBounds(g, float64(s.Value), s.Metric.String())
		if errors.Is(err, errFalse) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
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
		isOutside := bound.sign*value > bound.sign*limit
		text := fmt.Sprintf("the query gives %s%s, and must give at %s %s", number, metric, bound.words, *bound.limit)
		switch {
		case isOutside:
			return falseError(text)
		case math.IsNaN(value): // such as a share of nothing
			return errors.New(text)
		}
	}
	return nil
}
