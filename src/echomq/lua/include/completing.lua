-- purpose: what a completion owes in a queue with flows: its children are over, and its follow-ups come.
-- defines: unsettled, follow
-- What else a parent's completion hangs on; answers the verdict that is given instead.
local function unsettled(id, row)
  local f = call('HMGET', row_key(id), 'broken', 'early', 'cancel')
  if f[1] and f[3] then return cancel_now(id, row, f[3]) end --!guard complete-asked
  if f[1] then --!guard complete-broken
    bury(id, row, f[1])
    return 'dead'
  end
  local open = f[2] and 0 or open_children(id) --!guard complete-early
  return open > 0 and 'EMQSTATE children ' .. open or nil --!guard complete-open
end
-- Follow-ups come with the completion or not at all; one whose dedup key is taken stays out.
local function follow(packed)
  local fine, words = pcall(words_of, packed)
  if not fine then return 'EMQKIND follow: its nodes are malformed' end --!guard follow-whole
  local nodes, wrong = read_nodes(words, 1)
  if nodes then nodes, wrong = admit_nodes(words, nodes, {}) end
  return not nodes and wrong or nil
end
