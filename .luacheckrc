-- The dialect of the server: Lua 5.1 and its globals, nothing that a script may not touch.
std = "lua51"
globals = {}
read_globals = {
  "KEYS", "ARGV", "redis", "server", "cjson", "cmsgpack", "bit", "struct",
}
max_line_length = 160
codes = true
-- Includes are pasted in: a script need not use every local function of what it includes.
ignore = { "211", "212", "231" }
