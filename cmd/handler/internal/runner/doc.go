// Package runner is what `handler run` does once it has an ACP connection to an agent: it makes a session, sends one
// prompt, prints what comes of it, asks the person where the agent asks, shows where pictures are kept and says how it ended. It
// parses no flags and reads no environment.
//
// What an agent sends is untrusted: control and escape characters are made visible, never passed on to a terminal;
// one-line details are cut to the width; pictures are bounded, recognised by their bytes and saved under names of ours.
//
// # JSON
//
// With Options.JSON, standard output holds one JSON object a line and nothing else; questions still go to standard
// error. "event" says which; absent fields are empty. Times are seconds.
//
//	{"event":"start","agent","run","session","cwd"}
//	{"event":"text","text"}                                   a piece of the answer; join the pieces
//	{"event":"thought","text"}                                a piece of the agent's thinking
//	{"event":"plan","entries":[{"content","priority","status"}]}   the whole plan, at each change
//	{"event":"tool","tool","name","kind","detail","input"}    a tool call; "tool" is its id
//	{"event":"tool_done","tool","name","status","seconds","detail"}   status: completed, failed
//	{"event":"image","tool","path","artifact","media_type","bytes","sha256"}   a picture; handlerd keeps it as that artifact
//	{"event":"question","tool","name","detail","answer","by"} answer: allow_once, allow_always, reject_once,
//	                                                          reject_always, accept, decline, cancelled;
//	                                                          by: person, --yes, --read-only, --unattended, nobody, "nobody was asked: no terminal",
//	                                                          or the agent's rule: "agent web: answers[0]";
//	                                                          name "network" is Handler's own question about the
//	                                                          destination in detail: answer also allow_run,
//	                                                          reject_run; by also elsewhere; name "browser" is
//	                                                          Handler's own about the tool and site in detail
//	{"event":"notice","severity","text"}                      what the agent or we remark; severity: info, warning, error
//	{"event":"done","run","status","stop_reason","seconds","tool_calls","refused","images","error":{"message","code","rule","reason","hint"}}
//
// "done" is always the last line; "status" is the exit status, but for 130 where Ctrl-C ended it.
package runner
