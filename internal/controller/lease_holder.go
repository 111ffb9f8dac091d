// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/skyhook-k8s/skyhook/internal/options"
)

// holderFinder finds out who holds a lease. Who may write leases in one namespace can write any holder and renew it for ever; only an
// account that may change nodes can be an operator.
type holderFinder struct {
	pods    typedcorev1.PodsGetter
	reviews typedauthorizationv1.SubjectAccessReviewsGetter
}

// runsOperator reports whether the holder of a lease is a pod of its namespace that has not ended and whose account may patch nodes.
func (f *holderFinder) runsOperator(ctx context.Context, lease *otherLeader) (bool, error) {
	host := options.LeaseHost(lease.Lease)
	if len(validation.NameIsDNSSubdomain(host, false)) > 0 {
		return false, nil // no pod and no node is called that
	}
	ctx, cancel := context.WithTimeout(ctx, leaseDuration)
	defer cancel()
	for _, field := range []string{"metadata.name", "spec.nodeName"} {
		pods, err := f.pods.Pods(lease.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(field, host).String()})
		if err != nil {
			return false, fmt.Errorf("listing the pods of namespace %s with %s=%s: %w", lease.Namespace, field, host, err)
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if !options.HasHostname(p, host) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				continue
			}
			if mayPatch, err := f.mayPatchNodes(ctx, p); mayPatch || err != nil {
				return mayPatch, err
			}
		}
	}
	return false, nil
}

// mayPatchNodes reports whether the account of a pod may patch nodes.
func (f *holderFinder) mayPatchNodes(ctx context.Context, pod *corev1.Pod) (bool, error) {
	review, err := f.reviews.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + pod.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking whether the account of pod %s/%s may patch nodes: %w", pod.Namespace, pod.Name, err)
	}
	return review.Status.Allowed, nil
}
