-- purpose: rule 2. A write on behalf of a claim passes only under the lease it was made under.
-- defines: fenced, holds
local function holds(row, token, nonce)
  return row.attempts == token and row.holder == nonce --!guard token
end
-- Answers the row, or nil and the refusal.
local function fenced(id, token, nonce)
  local row = read(id)
  if not row.state then return nil, 'EMQGONE' end
  if row.state ~= 'active' then return nil, 'EMQSTALE ' .. row.state end --!guard state
  if not holds(row, token, nonce) then return nil, 'EMQSTALE active' end --!guard holder
  if not call('ZSCORE', SETS.active, id) then return nil, 'EMQSTALE torn' end --!guard member
  return row
end
