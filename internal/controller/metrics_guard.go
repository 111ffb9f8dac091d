// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/http"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Requests for metrics in a second, and at once. Scrapers ask every few seconds.
const (
	metricsRate  = 5
	metricsBurst = 20
)

// guardMetrics admits those to the metrics whom the API server allows to get them. Each token that is not known yet costs it a review, so that
// no more requests come through than scrapers need.
func guardMetrics(config *rest.Config, c *http.Client) (server.Filter, error) {
	admit, err := filters.WithAuthenticationAndAuthorization(config, c)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, metrics http.Handler) (http.Handler, error) {
		admitted, err := admit(log, metrics)
		return limitRequests(admitted), err
	}, nil
}

func limitRequests(h http.Handler) http.Handler {
	limit := rate.NewLimiter(metricsRate, metricsBurst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !limit.Allow() {
			http.Error(w, "too many requests: try again in a second", http.StatusTooManyRequests)
			return
		}
		h.ServeHTTP(w, r)
	})
}
