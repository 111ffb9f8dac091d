// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// How long an answer of the API server about who may read metrics is believed, and how many are kept.
const (
	allowedFor         = time.Minute
	refusedFor         = 10 * time.Second
	maxCachedDecisions = 1000
)

// metricsFilter lets those read metrics whom the API server knows and who may get the path, as kube-rbac-proxy does: the bearer
// token is reviewed, then the right.
type metricsFilter struct {
	authenticate func(context.Context, string) (authenticationv1.UserInfo, bool, error)
	authorize    func(context.Context, authenticationv1.UserInfo, *http.Request) (bool, error)
	clock        func() time.Time

	mu        sync.Mutex
	decisions map[string]cachedDecision // by token, method and path
}

type cachedDecision struct {
	statusCode int
	until      time.Time
}

// newMetricsFilter asks the API server.
func newMetricsFilter(c *rest.Config, h *http.Client) (metricsserver.Filter, error) {
	api, err := kubernetes.NewForConfigAndClient(c, h)
	if err != nil {
		return nil, fmt.Errorf("guarding the metrics: %w", err)
	}
	g := &metricsFilter{clock: time.Now, decisions: map[string]cachedDecision{}}
	g.authenticate = func(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
		r, err := api.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, false, err
		}
		return r.Status.User, r.Status.Authenticated, nil
	}
	g.authorize = func(ctx context.Context, u authenticationv1.UserInfo, r *http.Request) (bool, error) {
		extra := make(map[string]authorizationv1.ExtraValue, len(u.Extra))
		for key, value := range u.Extra {
			extra[key] = authorizationv1.ExtraValue(value)
		}
		answer, err := api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: strings.ToLower(r.Method)},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	}
	return g.wrap, nil
}

func (g *metricsFilter) wrap(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := g.decide(r)
		if err != nil {
			log.Error(err, "cannot find out who reads metrics")
		}
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// decide is the status for a request. An answer is kept for a while; that the API server gave none is not.
func (g *metricsFilter) decide(r *http.Request) (int, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return http.StatusUnauthorized, nil
	}
	key := r.Method + " " + r.URL.Path + " " + token
	g.mu.Lock()
	v, known := g.decisions[key]
	g.mu.Unlock()
	if known && g.clock().Before(v.until) {
		return v.statusCode, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	user, ok, err := g.authenticate(ctx, token)
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("reviewing a token: %w", err)
	}
	status, long := http.StatusUnauthorized, refusedFor
	if ok {
		status = http.StatusForbidden
		if ok, err = g.authorize(ctx, user, r); err != nil {
			return http.StatusInternalServerError, fmt.Errorf("reviewing the rights of %s: %w", user.Username, err)
		}
		if ok {
			status, long = http.StatusOK, allowedFor
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.decisions) >= maxCachedDecisions {
		clear(g.decisions)
	}
	g.decisions[key] = cachedDecision{status, g.clock().Add(long)}
	return status, nil
}
