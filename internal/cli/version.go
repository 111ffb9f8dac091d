// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// labelVersion is the recommended label with the version of an application.
const labelVersion = "app.kubernetes.io/version"

func newVersionCommand(f *factory) *cobra.Command {
	timeout := 10 * time.Second
	clientOnly := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and the operator",
		Example: "  kubectl skyhook version\n" +
			"  kubectl skyhook version --client-only",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.CheckFormat(); err != nil {
				return err
			}
			value := map[string]string{"plugin": f.version}
			text := fmt.Sprintf("Skyhook plugin:\t%s\n", f.version)
			if !clientOnly {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				c, err := f.newClient()
				operator := ""
				if err == nil {
					operator, err = findOperatorVersion(ctx, f, c)
				}
				value["operator"] = orUnknown(operator, err)
				text += fmt.Sprintf("Skyhook operator:\t%s\n", value["operator"])
			}
			return f.Print(output.Answer{Value: value, Names: []string{f.version}, Text: func(bool) string { return text }})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "time limit for finding the operator")
	cmd.Flags().BoolVar(&clientOnly, "client-only", false, "print only the version of the plugin")
	return cmd
}

// orUnknown returns a version, or why it is not known.
func orUnknown(version string, err error) string {
	if err != nil {
		return fmt.Sprintf("unknown (%v)", err)
	}
	return version
}

// findOperatorVersion finds the operator among the Deployments of its namespace.
func findOperatorVersion(ctx context.Context, f *factory, c client.Reader) (string, error) {
	operators, err := listOperators(ctx, f, c)
	if err != nil {
		return "", err
	}
	for i := range operators {
		if v := operators[i].Labels[labelVersion]; v != "" {
			return v, nil
		}
		for _, image := range operatorImages(&operators[i]) {
			image, _, _ = strings.Cut(image, "@")
			if tag, err := name.NewTag(image); err == nil && tag.TagStr() != name.DefaultTag {
				return tag.TagStr(), nil
			}
		}
	}
	if len(operators) > 0 {
		return "", fmt.Errorf("the operator's deployment in namespace %s tells no version", f.namespace())
	}
	return "", errors.New("no operator in namespace " + f.namespace() + ": name its namespace with -n")
}

// listOperators lists the Deployments of operators.
func listOperators(ctx context.Context, f *factory, c client.Reader) ([]appsv1.Deployment, error) {
	f.Note("listing the deployments of namespace %s", f.namespace())
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(f.namespace())); err != nil {
		return nil, fmt.Errorf("listing deployments in namespace %s: %w", f.namespace(), err)
	}
	var operators []appsv1.Deployment
	for _, d := range list.Items {
		if len(operatorImages(&d)) > 0 {
			operators = append(operators, d)
		}
	}
	return operators, nil
}

// operatorImages returns the images of an operator's Deployment; none when it is not an operator.
func operatorImages(d *appsv1.Deployment) []string {
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
