-- purpose: rule 2. A write on behalf of a claim passes only under the lease it was made under.
-- defines: read_ending, holds, fence
-- What the fence and an ending ask of a row: each field costs, and nearly every job ends once.
local function read_ending(id)
  local f
  if FLOWS then
    f = call('HMGET', row_key(id), 'state', 'attempts', 'holder', 'dedup', 'result_ttl_ms', 'lane', 'parent', 'children')
  else
    f = call('HMGET', row_key(id), 'state', 'attempts', 'holder', 'dedup', 'result_ttl_ms', 'lane')
  end
  return {
    state = f[1], attempts = f[2], holder = f[3], dedup = f[4], result_ttl_ms = f[5], lane = f[6], parent = f[7], children = f[8],
  }
end
local function holds(row, token, nonce)
  return row.attempts == token and row.holder == nonce --!guard token
end
-- Answers the fence of a call whose jobs' ids stand in `words` at `first` and every `stride` after it: a function that
-- answers the row, or nil and the refusal.
-- Membership is asked once, for all of them, when the first is about to pass. It stays true for the whole call: nothing
-- that is fenced makes a job active, and a job that has left `active` since has a row that says so, for the row is read
-- for each item and is written before the job leaves.
local function fence(words, first, stride, read_row)
  local leased
  return function(id, token, nonce)
    local row = read_row(id)
    if not row.state then return nil, 'EMQGONE' end
    if row.state ~= 'active' then return nil, 'EMQSTALE ' .. row.state end --!guard state
    if not holds(row, token, nonce) then return nil, 'EMQSTALE active' end --!guard holder
    if not leased then
      local found = {}
      -- In pieces, for `unpack` fails at some 8,000 values.
      for from = first, #words, 1000 * stride do
        local ids = {}
        for at = from, math.min(#words, from + 999 * stride), stride do
          ids[#ids + 1] = words[at]
        end
        local scores = call('ZMSCORE', ACTIVE, unpack(ids))
        for i = 1, #ids do
          found[ids[i]] = scores[i]
        end
      end
      leased = found
    end
    if not leased[id] then return nil, 'EMQSTALE torn' end --!guard member
    return row
  end
end
