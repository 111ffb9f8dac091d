// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// FindUser returns the name that the API server knows the user by, or the one in the kubeconfig if it does not say.
func (f *Factory) FindUser(ctx context.Context) string {
	user, err := f.askUser(ctx)
	if user != "" {
		return user
	}
	f.Note("the API server does not say who you are: %v", err)
	raw, err := f.KubeFlags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "unknown"
	}
	name := cmp.Or(*f.KubeFlags.Context, raw.CurrentContext)
	if current := raw.Contexts[name]; current != nil {
		return cmp.Or(*f.KubeFlags.AuthInfoName, current.AuthInfo, "unknown")
	}
	return cmp.Or(*f.KubeFlags.AuthInfoName, "unknown")
}

// askUser asks the API server, as kubectl auth whoami does.
func (f *Factory) askUser(ctx context.Context) (string, error) {
	config, err := f.RestConfig()
	if err != nil {
		return "", err
	}
	c, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return "", err
	}
	review, err := c.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}
