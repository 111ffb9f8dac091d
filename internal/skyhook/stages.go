// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook

// The stages of the compiler. Each works on the same compiled Skyhook: targetCompiler and taskCompiler find out what a node
// needs, renderer makes the objects of a task, recorder the edits of a node, and reporter what users read.
type (
	targetCompiler struct{ *Compiled }
	taskCompiler   struct{ *Compiled }
	renderer       struct{ *Compiled }
	recorder       struct{ *Compiled }
	reporter       struct{ *Compiled }
)

func (c *Compiled) targetCompiler() targetCompiler { return targetCompiler{c} }
func (c *Compiled) taskCompiler() taskCompiler     { return taskCompiler{c} }
func (c *Compiled) renderer() renderer             { return renderer{c} }
func (c *Compiled) recorder() recorder             { return recorder{c} }
func (c *Compiled) reporter() reporter             { return reporter{c} }
