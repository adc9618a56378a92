package main

import (
	"strings"
)

// ruleLists gives the network rules of a repeated flag, each of whose values may list several with commas between. The
// commas between the methods of a rule, "GET,HEAD http://HOST/*", are its own; one in a path is written %2C.
func ruleLists(values []string) (rules []string) {
	for _, v := range values {
		rules = append(rules, splitRules(v)...)
	}
	return rules
}

// splitRules splits at commas, but those behind a method: a word in capitals that methods and a blank follow.
func splitRules(text string) []string {
	var rules []string
	begun := ""
	parts := strings.Split(text, ",")
	for i, part := range parts {
		if isMethod(part) && methodsFollow(parts[i+1:]) {
			begun += part + ","
			continue
		}
		rules, begun = append(rules, begun+part), ""
	}
	return rules
}

// methodsFollow says whether what comes next are methods and then a blank.
func methodsFollow(parts []string) bool {
	for _, part := range parts {
		if word, _, blank := strings.Cut(part, " "); blank {
			return isMethod(word)
		}
		if !isMethod(part) {
			return false
		}
	}
	return false
}

func isMethod(word string) bool {
	return word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}
