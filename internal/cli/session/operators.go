// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// labelVersion is the recommended label with the version of an application.
const labelVersion = "app.kubernetes.io/version"

// FindOperatorVersion finds the operator among the Deployments of its namespace.
func FindOperatorVersion(ctx context.Context, f *Factory, c client.Reader) (string, error) {
	operators, err := ListOperators(ctx, f, c)
	if err != nil {
		return "", err
	}
	for i := range operators {
		if v := operators[i].Labels[labelVersion]; v != "" {
			return v, nil
		}
		for _, image := range OperatorImages(&operators[i]) {
			image, _, _ = strings.Cut(image, "@")
			if tag, err := name.NewTag(image); err == nil && tag.TagStr() != name.DefaultTag {
				return tag.TagStr(), nil
			}
		}
	}
	if len(operators) > 0 {
		return "", fmt.Errorf("the operator's deployment in namespace %s tells no version", f.Namespace())
	}
	return "", errors.New("no operator in namespace " + f.Namespace() + ": name its namespace with -n")
}

// ListOperators lists the Deployments of operators.
func ListOperators(ctx context.Context, f *Factory, c client.Reader) ([]appsv1.Deployment, error) {
	f.Note("listing the deployments of namespace %s", f.Namespace())
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(f.Namespace())); err != nil {
		return nil, fmt.Errorf("listing deployments in namespace %s: %w", f.Namespace(), err)
	}
	var operators []appsv1.Deployment
	for _, d := range list.Items {
		if len(OperatorImages(&d)) > 0 {
			operators = append(operators, d)
		}
	}
	return operators, nil
}

// OperatorImages returns the images of an operator's Deployment; none when it is not an operator.
func OperatorImages(d *appsv1.Deployment) []string {
	isOperator := false
	for key, value := range d.Labels {
		isOperator = isOperator || strings.Contains(key+"="+value, "skyhook")
	}
	var images []string
	for _, c := range d.Spec.Template.Spec.Containers {
		isOperator = isOperator || strings.Contains(c.Image, "skyhook")
		images = append(images, c.Image)
	}
	if !isOperator {
		return nil
	}
	return images
}
