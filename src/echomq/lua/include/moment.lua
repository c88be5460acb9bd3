-- purpose: moments as callers spell them: `+` and ms from now, or Unix ms; 0 is now.
-- defines: moment_of, ends
-- Answers Unix ms, or nil for what is no moment. What is so long from now may be so long from another moment.
local function moment_of(text, from)
  if string.byte(text) ~= 43 then return whole(text, 0, FAR) end
  local delay = whole(string.sub(text, 2), 0, LONGEST)
  return delay and (from or NOW) + delay
end
-- Reads `EXPIRES DEADLINE`; answers the fields of the row that say so, or nil.
local function ends(text, from)
  local expires, deadline = string.match(text, '^(%S+) (%S+)$')
  expires, deadline = moment_of(expires or 'none', from), moment_of(deadline or 'none', from)
  if not (expires and deadline) then return nil end --!guard ends-fit
  local fields = {}
  if expires > 0 then fields = { 'expires_ms', expires } end --!write expires
  if deadline > 0 then --!write deadline
    fields[#fields + 1] = 'deadline_ms'
    fields[#fields + 1] = deadline
  end
  return fields
end
